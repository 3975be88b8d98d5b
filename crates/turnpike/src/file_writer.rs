//! Replacement of a file on a dedicated thread. A disk that hangs stalls this thread, and not the
//! tasks of the control plane.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;

use atomic_file::Access;
use tokio::sync::oneshot;

/// Maximum number of contents that wait for the disk. Each content is a change by an operator, who
/// waits for the outcome.
const WAITING_MAX: usize = 64;

/// Handle of the thread that replaces a file. The first content starts the thread.
#[derive(Debug)]
pub(crate) struct FileWriter {
    path: PathBuf,
    sender: Option<SyncSender<Content>>,
}

/// Pending outcome of a file's replacement.
#[derive(Debug)]
pub(crate) struct Written(oneshot::Receiver<io::Result<()>>);

#[derive(Debug)]
struct Content {
    bytes: Vec<u8>,
    done: oneshot::Sender<io::Result<()>>,
}

impl FileWriter {
    /// Returns the writer of a file that is readable only by its owner.
    pub(crate) const fn new(path: PathBuf) -> Self {
        Self { path, sender: None }
    }

    /// Queues a replacement of the file after all earlier contents. Does not block.
    pub(crate) fn replace(&mut self, bytes: Vec<u8>) -> Written {
        let (done, written) = oneshot::channel();
        if let Err((done, error)) = self.send(Content { bytes, done }) {
            // The send cannot fail, because the receiver still exists.
            let _ = done.send(Err(error));
        }
        Written(written)
    }

    fn send(
        &mut self,
        content: Content,
    ) -> Result<(), (oneshot::Sender<io::Result<()>>, io::Error)> {
        let sender = match &self.sender {
            Some(sender) => sender,
            None => match start(self.path.clone()) {
                Ok(sender) => self.sender.insert(sender),
                Err(error) => return Err((content.done, error)),
            },
        };
        sender.try_send(content).map_err(|error| match error {
            TrySendError::Full(content) => {
                let hangs = format!("the disk has not taken the {WAITING_MAX} changes before it");
                (content.done, io::Error::new(io::ErrorKind::TimedOut, hangs))
            }
            TrySendError::Disconnected(content) => {
                (content.done, io::Error::other("the thread that writes has ended"))
            }
        })
    }
}

impl Written {
    /// Waits until the disk has stored the content.
    ///
    /// # Errors
    /// The write failed, and the file has its previous content.
    pub(crate) async fn wait(self) -> io::Result<()> {
        self.0.await.unwrap_or_else(|_| Err(io::Error::other("the thread that writes has ended")))
    }
}

fn start(path: PathBuf) -> io::Result<SyncSender<Content>> {
    let (sender, contents) = sync_channel(WAITING_MAX);
    thread::Builder::new().name("file-writer".to_owned()).spawn(move || write(&path, &contents))?;
    Ok(sender)
}

fn write(path: &std::path::Path, contents: &Receiver<Content>) {
    for Content { bytes, done } in contents {
        // The caller may have stopped waiting.
        let _ = done.send(atomic_file::replace(path, &bytes, Access::PRIVATE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a writer whose thread accepts no content, like a writer whose disk hangs.
    fn hanging() -> (FileWriter, Receiver<Content>) {
        let (sender, contents) = sync_channel(WAITING_MAX);
        (FileWriter { path: PathBuf::new(), sender: Some(sender) }, contents)
    }

    #[tokio::test]
    async fn contents_reach_the_disk_in_their_order() {
        let directory = crate::testing::Directory::new("file-writer");
        let path = directory.path().join("file");
        let mut writer = FileWriter::new(path.clone());
        let written: Vec<_> = (0..9).map(|n: u8| writer.replace(vec![n])).collect();
        for outcome in written {
            outcome.wait().await.unwrap();
        }
        assert_eq!(std::fs::read(&path).unwrap(), [8]);
        let mut nowhere = FileWriter::new(directory.path().join("none/file"));
        assert!(nowhere.replace(Vec::new()).wait().await.is_err());
    }

    #[tokio::test]
    async fn a_disk_that_hangs_blocks_no_caller_and_the_queue_is_bounded() {
        let (mut writer, contents) = hanging();
        let waiting: Vec<_> = (0..WAITING_MAX).map(|_| writer.replace(Vec::new())).collect();
        let refused = writer.replace(Vec::new()).wait().await.unwrap_err();
        assert!(refused.to_string().contains("64 changes"), "{refused}");
        drop(contents);
        for outcome in waiting {
            assert!(outcome.wait().await.is_err());
        }
    }
}
