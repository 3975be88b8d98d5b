// Relays datagrams through a TURN server with pion's client and compares what comes back.
//
// The peer is an echo server at PEER; every datagram must return unaltered. The client sends COUNT datagrams, and
// more until its standard input ends.
// With the transport tcp-relay, or tls-relay, the peer is an echo server for TCP, and is to call back.
// With COUNT 0 it binds a channel to PEER, and prints what that sends, until it is killed.
// Usage: pion SERVER USERNAME PASSWORD REALM PEER COUNT TRANSPORT
package main

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/pion/dtls/v2"
	"github.com/pion/logging"
	"github.com/pion/turn/v3"
)

func main() {
	if len(os.Args) != 8 {
		fail("usage: pion SERVER USERNAME PASSWORD REALM PEER COUNT TRANSPORT")
	}
	server, username, password, realm := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	peer, err := net.ResolveUDPAddr("udp", os.Args[5])
	check("peer", err)
	count, err := strconv.Atoi(os.Args[6])
	check("count", err)

	socket := open(os.Args[7], server)
	client, err := turn.NewClient(&turn.ClientConfig{
		STUNServerAddr: server, TURNServerAddr: server,
		Conn: socket, Username: username, Password: password, Realm: realm,
		LoggerFactory: logging.NewDefaultLoggerFactory(),
	})
	check("client", err)
	defer client.Close()
	check("listen", client.Listen())

	mapped, err := client.SendBindingRequest()
	check("binding", err)
	fmt.Println("mapped address", mapped)

	switch os.Args[7] {
	case "tcp-relay":
		relayTCP(client, dialTCP, server, os.Args[5], count)
		return
	case "tls-relay":
		relayTCP(client, dialTLS, server, os.Args[5], count)
		return
	}
	relay, err := client.Allocate()
	check("allocate", err)
	fmt.Println("relayed address", relay.LocalAddr())

	if count == 0 {
		listen(relay, peer)
	}
	enough := endOfInput()
	n := 0
	for ; n < count || !enough.Load(); n++ {
		// The first packets travel as Send indications, until pion's channel is bound.
		// Over TCP pion reads no message of fewer than 9 bytes until more follows, so one needs 5 bytes of data.
		sent := bytes.Repeat([]byte{byte(n)}, 5+n%1200)
		_, err := relay.WriteTo(sent, peer)
		check("send", err)
		check("deadline", relay.SetReadDeadline(time.Now().Add(5*time.Second)))
		buffer := make([]byte, 2000)
		length, from, err := relay.ReadFrom(buffer)
		check(fmt.Sprintf("receive %d", n), err)
		if from.String() != peer.String() || !bytes.Equal(buffer[:length], sent) {
			fail(fmt.Sprintf("datagram %d came back altered, from %v, %d bytes of %d", n, from, length, len(sent)))
		}
	}
	check("close", relay.Close())
	fmt.Printf("echoed %d datagrams\n", n)
}

// Becomes true when the standard input ends; true at once unless the input is a pipe.
func endOfInput() *atomic.Bool {
	ended := new(atomic.Bool)
	input, err := os.Stdin.Stat()
	check("input", err)
	if input.Mode()&os.ModeNamedPipe == 0 {
		ended.Store(true)
		return ended
	}
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		check("input", err)
		ended.Store(true)
	}()
	return ended
}

// Prints each datagram of the peer as a line, and sends to it now and then, by which pion binds the channel.
func listen(relay net.PacketConn, peer net.Addr) {
	go func() {
		for {
			_, err := relay.WriteTo([]byte("hello"), peer)
			check("send", err)
			time.Sleep(100 * time.Millisecond)
		}
	}()
	buffer := make([]byte, 2000)
	for {
		length, _, err := relay.ReadFrom(buffer)
		check("receive", err)
		fmt.Println("heard", string(buffer[:length]))
	}
}

// Relays TCP (RFC 6062): calls the peer, which echoes, and then echoes what a peer says that calls. Its connections for data are made here: pion takes the server's address for one of UDP.
func relayTCP(client *turn.Client, open func(string) net.Conn, server, peer string, pieces int) {
	dial := func() net.Conn { return open(server) }
	relay, err := client.AllocateTCP()
	check("allocate", err)
	address, err := net.ResolveTCPAddr("tcp", peer)
	check("peer", err)
	called, err := relay.DialWithConn(dial(), "tcp", peer)
	check("dial", err)
	fmt.Printf("echoed %d pieces\n", echoPieces(called, pieces))

	check("permission", client.CreatePermission(address))
	fmt.Println("relayed address", relay.Addr())
	calling, err := relay.AcceptTCPWithConn(dial())
	check("accept", err)
	_, err = io.Copy(calling, calling)
	check("echo", err)
	check("close", calling.Close())
	check("close", called.Close())
	fmt.Println("a peer was served")
	// The end of the allocation is that of its connections, with what is on its way: so it is told when all
	// has arrived.
	told, err := relay.AcceptTCPWithConn(dial())
	check("accept", err)
	check("close", told.Close())
	check("close", relay.Close())
}

// Sends so many pieces, more until the standard input ends, and a last one. Returns their number when all have returned.
func echoPieces(called net.Conn, pieces int) int {
	piece := bytes.Repeat([]byte("a stream that comes back as it was sent "), 100)
	last := bytes.Repeat([]byte("."), len(piece))
	enough := endOfInput()
	sent := make(chan int, 1)
	go func() {
		n := 1
		for ; n < pieces || !enough.Load(); n++ {
			_, err := called.Write(piece)
			check("send", err)
		}
		_, err := called.Write(last)
		check("send", err)
		sent <- n
	}()
	heard := make([]byte, len(piece))
	for back := 1; ; back++ {
		_, err := io.ReadFull(called, heard)
		check("receive", err)
		if bytes.Equal(heard, last) {
			if n := <-sent; n != back {
				fail(fmt.Sprintf("%d pieces of %d came back", back, n))
			}
			return back
		}
		if !bytes.Equal(heard, piece) {
			fail("the stream came back altered")
		}
	}
}

// An association: each message is a record of its own, and there is one other end.
type datagrams struct{ *dtls.Conn }

func (d datagrams) ReadFrom(buffer []byte) (int, net.Addr, error) {
	length, err := d.Read(buffer)
	return length, d.RemoteAddr(), err
}

func (d datagrams) WriteTo(message []byte, _ net.Addr) (int, error) { return d.Write(message) }

func dialTCP(server string) net.Conn {
	connection, err := net.Dial("tcp", server)
	check("connect", err)
	return connection
}

func dialTLS(server string) net.Conn {
	carrier := dialTCP(server).(*net.TCPConn)
	// Whose certificate it is, is for others to test.
	return overTLS{carrier, tls.Client(carrier, &tls.Config{InsecureSkipVerify: true})}
}

// A connection over TLS that pion takes for one of TCP: it wants its options.
type overTLS struct {
	*net.TCPConn
	records *tls.Conn
}

func (c overTLS) Read(bytes []byte) (int, error) { return c.records.Read(bytes) }

func (c overTLS) Write(bytes []byte) (int, error) { return c.records.Write(bytes) }

func (c overTLS) ReadFrom(from io.Reader) (int64, error) { return io.Copy(c.records, from) }

func (c overTLS) Close() error { return c.records.Close() }

func (c overTLS) CloseWrite() error { return c.records.CloseWrite() }

// What carries the messages to the server.
func open(transport, server string) net.PacketConn {
	switch transport {
	case "tcp", "tcp-relay":
		return turn.NewSTUNConn(dialTCP(server))
	case "tls", "tls-relay":
		return turn.NewSTUNConn(dialTLS(server))
	case "dtls":
		address, err := net.ResolveUDPAddr("udp", server)
		check("address", err)
		connection, err := dtls.Dial("udp", address, &dtls.Config{InsecureSkipVerify: true})
		check("connect", err)
		return datagrams{connection}
	}
	socket, err := net.ListenPacket("udp", ":0")
	check("listen", err)
	return socket
}

func check(what string, err error) {
	if err != nil {
		fail(what + ": " + err.Error())
	}
}

func fail(text string) {
	fmt.Fprintln(os.Stderr, text)
	os.Exit(1)
}
