//! `core/docs/rules.md` is what the schema of rules files says, and the schema is what is read.

use std::fs;

use serde_json::Value;
use tidegate_core::gate::{Gate, Rules};
use tidegate_core::{ClientIpSource, ErasedLimiter, MemoryLimiter, Platform};
use tidegate_dev::rules_page::{page, tables, tables_of};
use tidegate_harness::target::workspace;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn text() -> Result<String> {
    Ok(fs::read_to_string(workspace().join("core/docs/rules.md"))?)
}

fn schema() -> Result<Value> {
    Ok(serde_json::from_str(&fs::read_to_string(workspace().join("core/rules.schema.json"))?)?)
}

fn read(file: &str) -> std::result::Result<Rules, String> {
    Rules::parse("rules.toml", file).map_err(|error| format!("{error} in\n{file}"))
}

/// Makes a gate of a file, with stores in memory. These lend nothing, and nobody has keys for tokens.
fn made(file: &str) -> std::result::Result<(), String> {
    let rules = read(file)?;
    if rules.leases().count() > 0 || rules.expected_tokens().is_some() {
        return Ok(());
    }
    let stores = ["main", "memory", "location"];
    let stores = stores.map(|name| (name, Box::new(MemoryLimiter::new()) as Box<dyn ErasedLimiter>));
    let gate = Gate::with_stores(rules, stores, ClientIpSource::new(Platform::Direct));
    gate.map(drop).map_err(|error| format!("{error} in\n{file}"))
}

/// The files in a part of the page.
fn files(part: &str) -> impl Iterator<Item = &str> {
    part.split("\n```toml\n").skip(1).filter_map(|block| Some(block.split_once("\n```")?.0))
}

/// A row of the reference: the line of a file, its type and its default.
struct Row {
    line: String,
    kind: String,
    default: String,
}

impl Row {
    fn key(&self) -> &str {
        self.line.split(" = ").next().unwrap_or_default()
    }
}

/// A table of a file, as the page has it: its rows, and the files that show it.
struct Section<'a> {
    rows: Vec<Row>,
    files: Vec<&'a str>,
}

/// The sections of the page, without the one of quotas, whose rows are fields of an inline table.
fn sections(text: &str) -> Vec<Section<'_>> {
    let parts = text.split("<!-- schema: ").skip(1).filter(|part| !part.starts_with("limits.*.quotas[]"));
    let sections: Vec<Section<'_>> = parts
        .map(|part| {
            let reference = part.split("<!-- end of ").next().unwrap_or_default();
            let rows = reference.lines().filter(|line| line.starts_with("| `")).map(|line| {
                let cells: Vec<_> = line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_string()).collect();
                let bare = |cell: &str| cell.trim_matches('`').to_string();
                Row { line: bare(&cells[0]), kind: cells[1].clone(), default: bare(&cells[2]) }
            });
            Section { rows: rows.collect(), files: files(part).collect() }
        })
        .collect();
    // What a store is asked before is shown beside the rest of a store.
    let mut with_files: Vec<Section<'_>> = Vec::new();
    for mut section in sections {
        if section.files.is_empty() {
            section.files = with_files.last().map(|last| last.files.clone()).unwrap_or_default();
        }
        with_files.push(section);
    }
    with_files
}

/// The files of a section with something in the place of a line that has a key, for each such line.
fn with(section: &Section<'_>, key: &str, line: &str) -> Vec<String> {
    let mut found = Vec::new();
    for file in &section.files {
        let lines: Vec<_> = file.lines().collect();
        for place in 0..lines.len() {
            if lines[place].split(" = ").next() == Some(key) && !lines[place].ends_with('[') {
                let mut changed = lines.clone();
                changed[place] = line;
                found.push(changed.join("\n"));
            }
        }
    }
    found
}

#[test]
fn the_page_is_what_the_schema_gives() -> Result<()> {
    let text = text()?;
    let made = page(&text, &schema()?)?;
    for (line, made) in text.lines().zip(made.lines()) {
        assert_eq!(line, made, "run cargo make rules-page");
    }
    assert!(text == made, "run cargo make rules-page");
    let (mut has, mut of_schema): (Vec<_>, _) = (tables(&text).map(String::from).collect(), tables_of(&schema()?));
    has.sort();
    of_schema.sort();
    assert_eq!(has, of_schema, "the page has each table of the schema");
    Ok(())
}

#[test]
fn every_file_of_the_guide_is_read_without_a_warning() -> Result<()> {
    let mut count = 0;
    for page in ["rules", "keys"] {
        let text = fs::read_to_string(workspace().join(format!("core/docs/{page}.md")))?;
        for file in files(&text) {
            let warnings = read(file)?.warnings().to_vec();
            made(file)?;
            // The page on keys has a part of a file.
            assert!(warnings.is_empty() || page == "keys", "{warnings:?} in\n{file}");
            count += 1;
        }
    }
    assert!(count > 10, "{count}");
    Ok(())
}

#[test]
fn every_line_of_the_reference_is_read_where_its_file_has_the_key() -> Result<()> {
    let mut count = 0;
    for section in sections(&text()?) {
        for row in section.rows {
            // A table, which has a section of its own. JSON alone has the other.
            if row.line.starts_with('[') || row.line.starts_with('$') {
                continue;
            }
            let section = Section { rows: Vec::new(), files: section.files.clone() };
            let changed = with(&section, row.key(), &row.line);
            assert!(!changed.is_empty(), "no file of its section has {}", row.key());
            for file in changed {
                made(&file)?;
                count += 1;
            }
        }
    }
    assert!(count > 40, "{count}");
    Ok(())
}

#[test]
fn a_key_with_its_default_is_as_if_it_was_left_out() -> Result<()> {
    let mut count = 0;
    for section in sections(&text()?) {
        for row in section.rows.iter().filter(|row| !["none", "required"].contains(&&*row.default)) {
            let written = with(&section, row.key(), &format!("{} = {}", row.key(), row.default));
            for (written, left_out) in written.iter().zip(with(&section, row.key(), "")) {
                assert_eq!(read(written)?.to_bytes(), read(&left_out)?.to_bytes(), "{}", row.line);
                count += 1;
            }
        }
    }
    assert!(count >= 14, "{count}");
    Ok(())
}

#[test]
fn a_number_is_read_within_its_bounds_only() -> Result<()> {
    let mut count = 0;
    for section in sections(&text()?) {
        for row in &section.rows {
            let Some(bounds) = row.kind.strip_prefix("number, ") else { continue };
            let (least, most) = bounds.split_once(" to ").ok_or("no bounds")?;
            let number = |text: &str| if text == "2^51" { Ok(1 << 51) } else { text.replace(',', "").parse::<i64>() };
            let (least, most) = (number(least)?, number(most)?);
            // A grace is at most the slice, which is 50 in the example.
            let most = if row.key() == "grace" { 50 } else { most };
            for (value, fits) in [(least - 1, false), (least, true), (most, true), (most + 1, false)] {
                for file in with(&section, row.key(), &format!("{} = {value}", row.key())) {
                    assert_eq!(read(&file).is_ok(), fits, "{} = {value}: {:?}", row.key(), read(&file).err());
                    count += 1;
                }
            }
        }
    }
    assert!(count >= 40, "{count}");
    Ok(())
}

#[test]
fn every_quota_of_the_reference_is_read() -> Result<()> {
    let text = text()?;
    let quotas = text.lines().filter_map(|line| Some(line.strip_prefix("| `{ algorithm")?.split_once("` |")?.0));
    let quotas: Vec<_> = quotas.map(|rest| format!("{{ algorithm{rest}")).collect();
    assert_eq!(quotas.len(), 10, "one of each algorithm");
    for quota in quotas {
        let others = if quota.contains("penalty") {
            ", { algorithm = \"fixed_window\", limit = 5, window_ms = 1_000 }"
        } else {
            ""
        };
        read(&format!("[limits.api]\nquotas = [{quota}{others}]\n[[rules]]\nlimits = [\"api\"]"))?;
    }
    Ok(())
}
