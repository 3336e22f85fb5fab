//! Opens bench.html in a browser, and uses it like a reader.

#[path = "../../cli/tests/page/browser.rs"]
mod browser;

use std::fs;
use std::process::Command;

use browser::Browser;
use tidegate_measured::{Aim, At, Measurement, Unit};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A name that tries to become markup.
const HOSTILE: &str = "</script><img src=x onerror=document.title='hacked'>";

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_sees_the_benchmarks_as_charts_and_numbers() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let sweep = Measurement::new("redis", HOSTILE, Unit::PerSecond).aim(Aim::Ratio(1.5));
    let beside = ("a peer 2.0", &[100.0, 110.0, 90.0, 100.0, 100.0][..]);
    let mut lines = Measurement::new("size", "the package", Unit::Kib).line(&[70.9], Some(("a peer", &[40.0])))?;
    lines += &sweep.clone().at(At::InFlight(1)).line(&[120.0, 110.0, 130.0, 120.0, 120.0], Some(beside))?;
    lines += &sweep.at(At::InFlight(64)).line(&[200.0, 210.0, 190.0, 200.0, 200.0], Some(beside))?;
    for rules in [1, 10, 100] {
        let read = Measurement::new("growth", "reading the rules", Unit::Ns).at(At::Rules(rules));
        lines += &read.line(&[f64::from(rules * rules); 5], None)?;
    }
    let file = folder.path().join("bench.jsonl");
    fs::write(&file, lines)?;
    let mut report = Command::new(env!("CARGO_BIN_EXE_tidegate-dev"));
    let report = report.arg("bench-report").arg(&file).arg("--out").arg(folder.path()).output()?;
    assert!(report.status.success(), "{}", String::from_utf8_lossy(&report.stderr));

    let browser = Browser::start().await?;
    browser.client.set_window_size(400, 800).await?;
    browser.client.goto(&format!("file://{}/bench.html", folder.path().display())).await?;
    assert_eq!(browser.text("#result").await?, "6 measurements; 1 of 2 aims reached");
    assert_eq!(browser.value("performance.getEntriesByType('resource').length").await?, 0);
    // The chart of a sweep says in words what it draws, and hostile text stays text.
    let chart = browser.value("document.querySelector('figure > svg').getAttribute('aria-label')").await?;
    let told =
        "1: ours 120/s (110 to 130), theirs 100/s (90 to 110); 64: ours 200/s (190 to 210), theirs 100/s (90 to 110)";
    assert_eq!(chart, format!("{HOSTILE}. {told}"));
    assert_eq!(browser.value("document.images.length").await?, 0);
    assert_eq!(browser.text(".bars").await?, "the package beside a peer (hatched) 70.9 KiB 40 KiB");
    let caption = browser.text("#groups section:last-child figcaption").await?;
    assert_eq!(caption, "reading the rules costs n^2.00, which is more than n log n");
    browser.click("#groups section:nth-child(2) summary").await?;
    let row = browser.text("#groups section:nth-child(2) tbody tr:last-child").await?;
    assert!(row.contains("64 in flight 200/s 100/s 2.00 1.91 to 2.11") && row.ends_with("✓ at least 1.50"), "{row}");
    let scrolls = "document.documentElement.scrollWidth > document.documentElement.clientWidth";
    assert_eq!(browser.value(scrolls).await?, false);
    browser.client.close().await?;
    Ok(())
}
