//! What the containers write, line by line with their names before it.

use std::{pin::Pin, sync::Arc};

use futures::StreamExt;
use keelet_assembly::Run;
use keelet_serve::{
    log_state,
    logs::{LogRequest, read},
};
use tokio::{sync::mpsc, task::JoinSet};

use crate::{output, style::Style};

/// Lines that wait to be shown. A container that writes faster than a terminal shows waits in its file.
const LINES: usize = 256;

/// Follows the logs of all containers of all pods. Ends by itself once they have.
pub(super) fn follow(node: &Run, style: Style) -> (mpsc::Receiver<Vec<u8>>, JoinSet<()>) {
    let (sender, lines) = mpsc::channel(LINES);
    let mut tasks = JoinSet::new();
    let names: Vec<(usize, String)> = node
        .pods()
        .iter()
        .flat_map(|pod| pod.all_containers().map(|container| format!("{}/{}", pod.name, container.name)))
        .enumerate()
        .collect();
    let width = names.iter().map(|(_, name)| name.chars().count()).max().unwrap_or(0);
    let mut names = names.into_iter();
    for pod in node.pods() {
        let paths = node.layout().pod(pod);
        for container in pod.all_containers() {
            let (Some((index, name)), Ok(paths)) = (names.next(), &paths) else { continue };
            let prefix = style.one_of_many(index, &format!("{name:width$} |"));
            let directory = paths.container_log_dir(&container.name);
            let request = LogRequest { directory, follow: true, ..LogRequest::default() };
            let (board, uid, container) = (Arc::clone(node.board()), pod.uid.clone(), container.name.clone());
            let (mut begun, has_begun) = (false, node.has_begun(&uid));
            let log = read(request, move || {
                // It is not there before its first status, which must not look like the end.
                begun = begun || has_begun();
                if begun { log_state(&board, &uid, &container) } else { keelet_serve::logs::LogState::Open }
            });
            let (log, sender): (Pin<Box<dyn futures::Stream<Item = _> + Send>>, _) = (Box::pin(log), sender.clone());
            tasks.spawn(async move {
                let mut lines = Box::pin(output::lines(log));
                while let Some(Ok(line)) = lines.next().await {
                    if sender.send([prefix.as_bytes(), b" ", &line, b"\n"].concat()).await.is_err() {
                        return;
                    }
                }
            });
        }
    }
    (lines, tasks)
}
