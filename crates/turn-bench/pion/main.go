// A TURN server of pion's library, to be measured beside others: one UDP listener, time-limited credentials of a shared
// secret, relayed addresses of one IP address.
//
// Usage: pion-server LISTEN RELAY REALM SECRET MIN_PORT MAX_PORT
package main

import (
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/pion/logging"
	"github.com/pion/turn/v4"
)

func main() {
	if len(os.Args) != 7 {
		fail(fmt.Errorf("usage: pion-server LISTEN RELAY REALM SECRET MIN_PORT MAX_PORT"))
	}
	listen, relay, realm, secret := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	first, err := strconv.ParseUint(os.Args[5], 10, 16)
	check(err)
	last, err := strconv.ParseUint(os.Args[6], 10, 16)
	check(err)
	socket, err := net.ListenPacket("udp4", listen)
	check(err)
	logger := logging.NewDefaultLoggerFactory()
	logger.DefaultLogLevel = logging.LogLevelError
	server, err := turn.NewServer(turn.ServerConfig{
		Realm:         realm,
		LoggerFactory: logger,
		// `EXPIRY:USER` and its HMAC-SHA1, as coturn's use-auth-secret has them.
		AuthHandler: turn.LongTermTURNRESTAuthHandler(secret, logger.NewLogger("auth")),
		PacketConnConfigs: []turn.PacketConnConfig{{
			PacketConn: socket,
			RelayAddressGenerator: &turn.RelayAddressGeneratorPortRange{
				RelayAddress: net.ParseIP(relay), Address: relay,
				MinPort: uint16(first), MaxPort: uint16(last),
			},
		}},
	})
	check(err)
	defer server.Close()
	select {}
}

func check(err error) {
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
