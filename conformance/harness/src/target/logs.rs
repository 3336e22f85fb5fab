//! What the programs of a target print: in a file beside the report, one for each target.

use std::fs::File;
use std::future::Future;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::sync::OnceLock;

/// The folder of the files.
static FOLDER: OnceLock<PathBuf> = OnceLock::new();

tokio::task_local! {
    /// The file of the target that is started.
    static TARGET: PathBuf;
}

/// The last lines of a program that does not start.
const LINES: usize = 30;

/// Sets the folder of the files. Without one, they are temporary.
pub fn logs_in(folder: PathBuf) {
    // Only the first run of a process has reports.
    let _ = FOLDER.set(folder);
}

/// Starts a target, whose programs print into a file of its own.
pub(crate) async fn logged<T>(target: &str, start: impl Future<Output = T>) -> T {
    let Some(folder) = FOLDER.get() else { return start.await };
    let file = folder.join(format!("{target}.log"));
    if std::fs::create_dir_all(folder).and_then(|()| File::create(&file)).is_err() {
        return start.await;
    }
    TARGET.scope(file, start).await
}

/// The file into which a program prints.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    at: Option<PathBuf>,
    start: u64,
}

impl Log {
    pub(super) fn open() -> std::io::Result<Self> {
        let at = TARGET.try_with(Clone::clone).ok();
        let file = match &at {
            Some(path) => File::options().read(true).append(true).create(true).open(path)?,
            // To append, so that it can be read while the program prints.
            None => tempfile::Builder::new().append(true).tempfile()?.into_file(),
        };
        let start = file.metadata()?.len();
        Ok(Self { file, at, start })
    }

    /// The end for a program to print into.
    pub(super) fn end(&self) -> std::io::Result<File> {
        self.file.try_clone()
    }

    /// What the program has printed, up to a megabyte.
    pub(super) fn text(&self) -> std::io::Result<String> {
        let mut text = Vec::new();
        let mut file = self.file.try_clone()?;
        file.seek(SeekFrom::Start(self.start))?;
        file.take(1 << 20).read_to_end(&mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// The last lines that the program has printed, to be shown if it does not start.
    pub(super) fn last_lines(&self) -> String {
        let text = self.text().unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = lines[lines.len().saturating_sub(LINES)..].join("\n");
        match &self.at {
            _ if last.is_empty() => String::new(),
            Some(path) => format!("; its last lines in {}:\n{last}", path.display()),
            None => format!("; its last lines:\n{last}"),
        }
    }
}
