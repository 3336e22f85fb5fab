//! The macro itself, on files of this package.

use tidegate_core::Error;
use tidegate_core::gate::Rules;
use tidegate_rules::rules;

#[test]
fn the_rules_are_those_of_the_file() -> Result<(), Error> {
    let read = Rules::parse("rules.toml", include_str!("../examples/rules.toml"))?;
    let compiled = rules!("examples/rules.toml")?;
    assert!(Rules::from_plain_bytes(&read.to_bytes()).is_ok());
    assert_eq!(compiled.to_bytes(), read.to_bytes());
    Ok(())
}

#[test]
fn rules_put_limiters_around_their_stores() -> Result<(), Error> {
    let read = Rules::parse("stores.json", include_str!("../examples/stores.json"))?;
    let compiled = rules!("examples/stores.json")?;
    assert_eq!(format!("{compiled:?}"), format!("{read:?}"));
    assert!(Rules::from_plain_bytes(&read.to_bytes()).is_err());
    Ok(())
}
