//! Sends a response in one TCP segment.

use spin_sdk::http::{OutgoingBody, OutgoingResponse, Response, ResponseOutparam};
use tidegate_core::{Error, ErrorKind};

/// The most that `blocking_write_and_flush` takes at once.
const BLOCKING_WRITE_MAX: usize = 4_096;

/// Sends `response` as the answer to a request, body first.
///
/// Spin does not set `TCP_NODELAY`. The SDK sets the head before it writes the body, so the two leave in two TCP
/// segments, and on a keep-alive connection the second one waits for the client's delayed acknowledgement: some 40 ms.
/// This function writes the body before it sets the head, and the host sends both together.
///
/// ```
/// # #[cfg(target_arch = "wasm32")] mod app {
/// use spin_sdk::http::{IncomingRequest, Response, ResponseOutparam};
///
/// // With `#[spin_sdk::http_component]` above it:
/// async fn handle(_: IncomingRequest, out: ResponseOutparam) {
///     if let Err(error) = tidegate_spin::respond(out, Response::new(200, "hello\n")) {
///         eprintln!("{error}");
///     }
/// }
/// # }
/// ```
///
/// # Errors
/// [`ErrorKind::Invalid`] if a field or the status cannot be sent. Spin then answers 500. A client that disconnects
/// early is not an error.
pub fn respond(out: ResponseOutparam, mut response: Response) -> Result<(), Error> {
    let bytes = std::mem::take(response.body_mut());
    let head = OutgoingResponse::try_from(response).map_err(|error| invalid(&error))?;
    let body = head.body().map_err(|()| invalid(&"the body was taken"))?;
    let stream = body.write().map_err(|()| invalid(&"the body was taken"))?;
    // Write what fits into the host's buffer, and do not wait for more room: nothing is sent before the head is set.
    let room = stream.check_write().map_or(0, |room| usize::try_from(room).unwrap_or(usize::MAX));
    let (first, rest) = bytes.split_at(room.min(bytes.len()));
    let written = stream.write(first);
    if written.is_ok() && rest.is_empty() {
        drop(stream);
        // The end of the body must be known, too, or it leaves in a segment of its own.
        let _gone = OutgoingBody::finish(body, None);
        out.set(head);
        return Ok(());
    }
    out.set(head);
    let _gone = rest.chunks(BLOCKING_WRITE_MAX).try_for_each(|chunk| stream.blocking_write_and_flush(chunk));
    drop(stream);
    let _gone = OutgoingBody::finish(body, None);
    Ok(())
}

fn invalid(why: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Invalid, format!("response: {why}"))
}
