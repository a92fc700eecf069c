//! The lines of a watch.

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use kube::client::Body;

use super::{ApiError, no_answer};

/// The lines of a body that has no end.
#[derive(Debug)]
pub struct Lines<B = Body> {
    body: B,
    buffer: BytesMut,
    /// So much of the buffer has no line break.
    searched: usize,
}

/// The longest line: an object of the API server has at most some 1.5 MiB in its store, and JSON may be a few times as long.
const LONGEST: usize = 16 * 1024 * 1024;

/// A buffer that grew for one large object is given back above this.
const KEPT: usize = 256 * 1024;

// === impl Lines ===

impl<B: http_body::Body<Data = Bytes, Error: std::error::Error> + Unpin> Lines<B> {
    pub(super) fn new(body: B) -> Self {
        Self { body, buffer: BytesMut::new(), searched: 0 }
    }

    /// The next line, without its break; none when the body has ended. A last line without a break is half an event, and is left out.
    pub async fn next(&mut self) -> Result<Option<BytesMut>, ApiError> {
        loop {
            if let Some(at) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(self.searched + at);
                self.buffer.advance(1);
                self.searched = 0;
                if self.buffer.is_empty() && self.buffer.capacity() > KEPT {
                    self.buffer = BytesMut::new();
                }
                return Ok(Some(line));
            }
            self.searched = self.buffer.len();
            if self.searched > LONGEST {
                return Err(ApiError::NoAnswer("a line of the watch is too long".to_owned()));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => return Err(no_answer(error)),
                None => return Ok(None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(pieces: &[&str]) -> Vec<String> {
        let pieces = pieces
            .iter()
            .map(|piece| Ok::<_, std::io::Error>(http_body::Frame::data(Bytes::from((*piece).to_owned()))));
        let body = http_body_util::StreamBody::new(futures::stream::iter(pieces.collect::<Vec<_>>()));
        let mut lines = Lines::new(body);
        let mut found = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            found.push(String::from_utf8(line.to_vec()).unwrap());
        }
        found
    }

    #[tokio::test]
    async fn lines_come_whole_however_they_are_cut() {
        assert_eq!(lines(&["a\nb\n"]).await, ["a", "b"]);
        assert_eq!(lines(&["a", "", "b\nc", "\n"]).await, ["ab", "c"]);
        assert_eq!(lines(&["\n\n"]).await, ["", ""]);
        assert_eq!(lines(&["a\nhalf"]).await, ["a"]);
        assert_eq!(lines(&[]).await, Vec::<String>::new());
    }
}
