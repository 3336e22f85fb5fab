use std::path::Path;
use std::{fs, io};

use serde::{Deserialize, Serialize};
use tidegate_traffic::Tidegate;

/// The report of a deliberately broken limiter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MutantReport {
    /// The name of the mutant.
    pub name: String,
    /// What is broken.
    pub about: String,
    /// The fixtures that caught it.
    pub caught_by: Vec<String>,
}

/// The file of the result with all fixtures, beside the reports of runs.
const FILE: &str = "mutants.json";

#[derive(Serialize, Deserialize)]
struct Tested {
    tidegate: Tidegate,
    mutants: Vec<MutantReport>,
}

impl MutantReport {
    /// Returns the mutants that this build has tested, if their result is in the folder.
    #[must_use]
    pub fn read_all(folder: &Path) -> Vec<Self> {
        let text = fs::read(folder.join(FILE)).unwrap_or_default();
        let tested = serde_json::from_slice::<Tested>(&text).ok();
        tested.filter(|tested| tested.tidegate == Tidegate::this()).map(|tested| tested.mutants).unwrap_or_default()
    }

    /// Writes the result of this build, for the reports of later runs.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn write_all(mutants: Vec<Self>, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        fs::write(folder.join(FILE), serde_json::to_string(&Tested { tidegate: Tidegate::this(), mutants })?)
    }
}
