use super::{Failure, Selection};

pub(super) fn run(_selection: &Selection) -> Result<(), Failure> {
    Ok(())
}
