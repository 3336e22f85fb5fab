use std::path::PathBuf;

use tidegate_conformance::fixture::{self, Case};
use tidegate_conformance::reference::Prepared;
use tidegate_conformance::run;
use wildmatch::WildMatch;

use super::{Failure, block_on, counted, rules};

/// Selects fixtures.
#[derive(Debug, clap::Args)]
pub struct Selection {
    /// The folder of fixtures. The default is the workspace's folder.
    #[arg(long, value_name = "DIR")]
    pub fixtures: Option<PathBuf>,
    /// The rules file, in TOML or JSON, of gate fixtures that have none. Every limit counts in the target's store,
    /// whichever store the rules name. Of the table `stores`, only `near` applies.
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,
    /// Select only fixtures whose id matches, for example 'token-bucket/*'. May be repeated.
    #[arg(long, value_name = "GLOB")]
    pub filter: Vec<String>,
}

impl Selection {
    /// Whether all fixtures of the workspace are selected.
    #[must_use]
    pub const fn is_all(&self) -> bool {
        self.fixtures.is_none() && self.rules.is_none() && self.filter.is_empty()
    }

    /// Loads the selected fixtures.
    ///
    /// # Errors
    /// Lists every problem with a fixture, or says that a pattern matches none.
    pub fn load(&self) -> Result<Vec<Case>, Failure> {
        let folder = self.fixtures.as_deref().unwrap_or(fixture::shipped());
        let rules = self.rules.as_deref().map(rules::for_target).transpose()?;
        let cases = fixture::load(folder, rules.as_ref()).map_err(|problems| {
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            Failure::Usage(format!("{} in the fixtures\n{}", counted(lines.len(), "problem"), lines.join("\n")))
        })?;
        self.filtered(cases)
    }

    /// Loads the selected fixtures, with the reference's answers.
    ///
    /// # Errors
    /// See [`Selection::load`]. Lists what contradicts the reference, too.
    pub fn prepared(&self) -> Result<Vec<Prepared>, Failure> {
        let prepared = block_on(run::prepare(self.load()?))?;
        prepared.map_err(|wrong| {
            let wrong = wrong.join("\n  ");
            Failure::Usage(format!("these fixtures contradict the reference:\n  {wrong}"))
        })
    }

    fn filtered(&self, cases: Vec<Case>) -> Result<Vec<Case>, Failure> {
        if self.filter.is_empty() {
            return Ok(cases);
        }
        let mut wanted = vec![false; cases.len()];
        for text in &self.filter {
            let pattern = WildMatch::new(text);
            let matching = cases.iter().enumerate().filter(|(_, case)| pattern.matches(case.id()));
            let places: Vec<usize> = matching.map(|(place, _)| place).collect();
            if places.is_empty() {
                let mut groups: Vec<&str> = cases.iter().filter_map(|case| case.id().split('/').next()).collect();
                groups.dedup();
                return Err(Failure::Usage(format!(
                    "--filter {text:?} matches no fixture; write '<group>/<name>', where * matches any text; \
                     the groups are {} (`tidegate fixtures` lists all)",
                    groups.join(", ")
                )));
            }
            for place in places {
                wanted[place] = true;
            }
        }
        Ok(cases.into_iter().zip(wanted).filter(|(_, wanted)| *wanted).map(|(case, _)| case).collect())
    }
}
