//! TLS on connections: handshakes begin and go on while there is time for them, wait, or fail.

use std::net::IpAddr;

use control::{Series, StreamEnd};
use turn_session::{TlsConfig, TlsError};
use turn_types::{SocketId, Transport};

use crate::handshakes::{NoTime, Step, Work};
use crate::limits::{HELLO_KEPT_BYTES, PAUSED_RESUMED};
use crate::worker::Worker;

impl Worker {
    /// TLS cannot begin, or has come to an end that nobody wanted.
    pub(crate) fn refuse_tls(&mut self, id: SocketId, error: &TlsError) {
        // The other end is told, as far as that goes.
        self.write_stream(id);
        if let Some(stream) = self.streams.get_mut(id) {
            let client = stream.path.five_tuple.client;
            self.observer.tls_refused(self.now.instant, client, error);
        }
        self.close_stream(id, StreamEnd::TlsFailed);
    }

    /// The first of a connection is a TLS handshake.
    pub(crate) fn begin_tls(&mut self, id: SocketId, (message, start): (usize, usize)) {
        let Some(config) = self.tls.clone().filter(TlsConfig::can_serve) else {
            return self.close_stream(id, StreamEnd::TlsNotServed);
        };
        let Some(stream) = self.streams.get_mut(id) else { return };
        let client = stream.path.five_tuple.client.0.ip();
        let work = self.begin_tls_work(client, Step::Begin);
        let Some(stream) = self.streams.get_mut(id) else { return };
        let hello = &self.rx.message(message).data[start..];
        let work = match work {
            Ok(work) => work,
            Err(_) if hello.len() > HELLO_KEPT_BYTES => {
                return self.close_stream(id, StreamEnd::TooLong);
            }
            Err(why) => {
                stream.keep(hello);
                return match why {
                    NoTime::Turn => self.released.push(id),
                    NoTime::Customer => self.pause(id),
                };
            }
        };
        let begun = stream.begin_tls(&config, hello);
        self.handshakes.done(self.now.instant, work);
        let Some(stream) = self.streams.get_mut(id) else { return };
        let five_tuple = stream.path.five_tuple;
        match begun {
            Ok(()) => {
                self.server.close(self.now, &five_tuple);
                self.settle(self.now);
                self.write_stream(id);
            }
            Err(error) => self.refuse_tls(id, &error),
        }
    }

    /// Goes on with a handshake, if there is time. Otherwise what the client said stays in the kernel.
    pub(crate) fn continue_tls(&mut self, id: SocketId) -> Option<Work> {
        let client = self.streams.get_mut(id)?.path.five_tuple.client.0.ip();
        match self.begin_tls_work(client, Step::Continue) {
            Ok(work) => return Some(work),
            Err(NoTime::Turn) => {}
            Err(NoTime::Customer) => self.pause(id),
        }
        None
    }

    /// Begins work, and tells the operator if a client has to wait for it.
    fn begin_tls_work(&mut self, client: IpAddr, step: Step) -> Result<Work, NoTime> {
        let begun = self.begin_handshake_work(client, step, Transport::Tls);
        begun.inspect_err(|why| self.warn_of_handshakes(client, *why))
    }

    /// Reads no more of a stream until its customer may have time again.
    fn pause(&mut self, id: SocketId) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        stream.is_paused = true;
        self.observer.count(Series::StreamsPaused, 1);
        if self.sockets.change(&stream.socket, id, stream.interest()).is_err() {
            self.close_stream(id, StreamEnd::Broken);
        }
    }

    /// Goes on with some of the streams whose handshakes wait.
    pub(crate) fn resume_paused(&mut self) {
        let Self { streams, sockets, released, .. } = self;
        for stream in streams.iter_mut().filter(|stream| stream.is_paused).take(PAUSED_RESUMED) {
            stream.is_paused = false;
            let id = stream.path.socket;
            // It fails only for what is not in the set; then it has its time as any other.
            drop(sockets.change(&stream.socket, id, stream.interest()));
            released.push(id);
        }
    }
}
