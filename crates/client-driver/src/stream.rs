//! A TCP connection to the server: messages in a stream of bytes, plain or in TLS.
//!
//! Writes are whole or refused, so that a message is never cut: while part of an earlier write is
//! queued, media is refused and requests are queued.

use std::io::{self, BufRead as _, Write as _};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use linux_net::{ReadOutcome, TcpStream};
use rustls::ClientConnection;
use stun_wire::{Cut, next_message_rfc5766};

/// Bytes of queued requests: more than a client ever has in flight.
const QUEUE_MAX: usize = 64 * 1024;

/// A connection.
#[derive(Debug)]
pub struct Stream {
    socket: TcpStream,
    local: SocketAddr,
    tls: Option<Box<ClientConnection>>,
    /// Without TLS: bytes that the socket has not taken. (TLS has a queue of its own.)
    unsent: Vec<u8>,
    /// Received, decrypted bytes of a partial message.
    received: Vec<u8>,
    /// Bytes queued since the queue was empty.
    queued: usize,
    /// The first error: the kernel reports it once.
    broken: Option<String>,
}

impl Stream {
    /// A connection in progress.
    pub(crate) fn new(socket: TcpStream, tls: Option<ClientConnection>) -> io::Result<Self> {
        let local = socket.local_addr()?;
        let tls = tls.map(Box::new);
        let (unsent, received, queued, broken) = (Vec::new(), Vec::new(), 0, None);
        Ok(Self { socket, local, tls, unsent, received, queued, broken })
    }

    /// The local address.
    pub(crate) const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Sends messages, padded as on a stream; `false`, and none of them, while the socket is full.
    /// In TLS each call makes a record of its own, or several above 16 KiB.
    pub(crate) fn offer(&mut self, messages: &[u8]) -> io::Result<bool> {
        if !self.flush()? {
            return Ok(false);
        }
        let Some(tls) = &mut self.tls else {
            let taken = self.socket.write([messages, &[]]);
            let taken = self.noted(taken)?;
            if taken > 0 {
                self.unsent.extend_from_slice(&messages[taken..]);
            }
            return Ok(taken > 0);
        };
        tls.writer().write_all(messages)?;
        self.flush()?;
        Ok(true)
    }

    /// Sends or queues a message; `false` when the queue is full.
    pub(crate) fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        if self.queued + message.len() > QUEUE_MAX {
            self.flush()?;
        }
        if self.queued + message.len() > QUEUE_MAX {
            return Ok(false);
        }
        self.queued += message.len();
        match &mut self.tls {
            Some(tls) => tls.writer().write_all(message)?,
            None => self.unsent.extend_from_slice(message),
        }
        self.flush()?;
        Ok(true)
    }

    /// Writes the queue; `true` when it is empty.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        let flushed = self.write_queue();
        self.noted(flushed)
    }

    /// Keeps the first error.
    fn noted<T>(&mut self, outcome: io::Result<T>) -> io::Result<T> {
        outcome.map_err(|error| {
            let why = self.broken.get_or_insert_with(|| error.to_string());
            io::Error::new(error.kind(), why.clone())
        })
    }

    fn write_queue(&mut self) -> io::Result<bool> {
        if let Some(tls) = &mut self.tls {
            while tls.wants_write() {
                match tls.write_tls(&mut &self.socket) {
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                    Err(error) => return Err(error),
                }
            }
        }
        while !self.unsent.is_empty() {
            match self.socket.write([&self.unsent, &[]])? {
                0 => return Ok(false),
                taken => drop(self.unsent.drain(..taken)),
            }
        }
        // Until the end of the handshake TLS queues the messages.
        if self.tls.as_ref().is_none_or(|tls| !tls.is_handshaking()) {
            self.queued = 0;
        }
        Ok(true)
    }

    /// Reads once and passes whole messages to `each`, without their padding; `false` when nothing
    /// was there.
    pub(crate) fn receive(
        &mut self,
        buffer: &mut [u8],
        mut each: impl FnMut(&[u8]),
    ) -> io::Result<bool> {
        // Epoll reports writability like data.
        self.flush()?;
        let len = match self.socket.read(buffer)? {
            ReadOutcome::WouldBlock => return Ok(false),
            ReadOutcome::Ended => {
                let what = "the server closed the connection";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
            }
            ReadOutcome::Read(len) => len,
        };
        let Self { tls, received, .. } = self;
        match tls {
            None if received.is_empty() => {
                let taken = cut(&buffer[..len], &mut each)?;
                received.extend_from_slice(&buffer[taken..len]);
            }
            None => {
                received.extend_from_slice(&buffer[..len]);
                drop(received.drain(..cut(received, &mut each)?));
            }
            Some(tls) => {
                let outcome = decrypt(tls, &buffer[..len], received);
                // An alert as well.
                self.flush()?;
                outcome?;
                drop(self.received.drain(..cut(&self.received, &mut each)?));
            }
        }
        Ok(true)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Decrypts all bytes and appends the plaintext.
fn decrypt(tls: &mut ClientConnection, mut bytes: &[u8], plain: &mut Vec<u8>) -> io::Result<()> {
    while !bytes.is_empty() {
        tls.read_tls(&mut bytes)?;
        tls.process_new_packets().map_err(|error| io::Error::other(format!("TLS: {error}")))?;
        let mut reader = tls.reader();
        // Nothing now, or the end, which the socket reports as well.
        while let Ok(chunk @ [_, ..]) = reader.fill_buf() {
            plain.extend_from_slice(chunk);
            let len = chunk.len();
            reader.consume(len);
        }
    }
    Ok(())
}

/// Passes the whole messages at the front to `each`, and returns their length.
fn cut(bytes: &[u8], each: &mut impl FnMut(&[u8])) -> io::Result<usize> {
    let mut at = 0;
    loop {
        match next_message_rfc5766(&bytes[at..]) {
            Cut::NeedMore { .. } => return Ok(at),
            Cut::Message { len, padded_len } => {
                each(&bytes[at..at + len]);
                at += padded_len;
            }
            Cut::Garbage => {
                let what = "the server sent neither STUN nor ChannelData";
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::time::Duration;

    use linux_net::ConnectOptions;

    use super::*;

    /// A connection with small buffers, and its far end, which blocks.
    fn pair() -> (Stream, std::net::TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let options = ConnectOptions { send_buffer: 4096, ..ConnectOptions::default() };
        let near = TcpStream::connect_to(listener.local_addr().unwrap(), &options).unwrap();
        let (far, _) = listener.accept().unwrap();
        far.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        (Stream::new(near, None).unwrap(), far)
    }

    fn message(fill: u8) -> Vec<u8> {
        [&[0x40, 0, 0, 5][..], &[fill; 5], &[0; 3]].concat()
    }

    #[test]
    fn a_full_socket_refuses_media_whole_and_keeps_requests() {
        let (mut near, mut far) = pair();
        let media = message(1).repeat(1000);
        let mut taken = 0;
        while near.offer(&media).unwrap() {
            taken += 1;
        }
        assert!(taken > 0);
        assert!(near.send(&message(2)).unwrap(), "kept");
        let mut all = vec![0; taken * media.len() + 12];
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| far.read_exact(&mut all));
            while !near.flush().unwrap() {
                std::thread::yield_now();
            }
            reading.join().unwrap().unwrap();
        });
        assert_eq!(all[..taken * media.len()], media.repeat(taken));
        assert_eq!(all[taken * media.len()..], message(2));
        assert!(near.offer(&media).unwrap(), "there is room again");
    }

    #[test]
    fn requests_that_wait_are_bounded() {
        let (mut near, _far) = pair();
        let media = message(1).repeat(1000);
        while near.offer(&media).unwrap() {}
        // The kernel may take more meanwhile, and ends it.
        while near.send(&message(2)).unwrap() {
            assert!(near.unsent.len() <= QUEUE_MAX);
        }
        assert!(near.unsent.len() > QUEUE_MAX - 12, "{} bytes", near.unsent.len());
    }

    #[test]
    fn messages_are_cut_wherever_the_bytes_are_parted() {
        let (mut near, mut far) = pair();
        let sent = [message(1), message(2), message(3)].concat();
        let mut heard = Vec::new();
        for part in sent.chunks(7) {
            far.write_all(part).unwrap();
            let mut buffer = [0; 64];
            while !near.receive(&mut buffer, |one| heard.push(one.to_vec())).unwrap() {
                std::thread::yield_now();
            }
        }
        let expected: Vec<_> = (1..=3).map(|fill| message(fill)[..9].to_vec()).collect();
        assert_eq!(heard, expected, "without their padding");
        far.write_all(&[0xFF; 8]).unwrap();
        drop(far);
        let mut ended = Ok(true);
        while ended.is_ok() {
            ended = near.receive(&mut [0; 64], |_| panic!("a message"));
        }
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
