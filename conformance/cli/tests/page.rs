//! Opens report.html, replay.html and simulation.html in a browser, and uses them like a reader.

#[path = "page/browser.rs"]
mod browser;

use std::fs;
use std::path::Path;

use browser::Browser;
use fantoccini::Locator;
use serde_json::json;
use tempfile::TempDir;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The text of a fixture that tries to become markup.
const HOSTILE: &str = "</script><img src=x onerror=document.title='hacked'>";

const BURST: &str = r#"{ "id": "bursts/three", "about": "ABOUT", "policy": { "name": "p", "quotas":
    [{ "algorithm": "fixed_window", "limit": 3, "window_ms": 1000 }] }, "steps": [
    { "at_ms": 0, "burst": 40, "key": "k", "expect": { "admitted": 3 } },
    { "at_ms": 1000, "burst": 2, "key": "k", "expect": { "admitted": 2 } }] }"#;

const RESTART: &str = r#"{ "id": "store/restart", "about": "The store is killed.", "policy": { "name": "p", "quotas":
    [{ "algorithm": "fixed_window", "limit": 3, "window_ms": 1000 }] },
    "steps": [{ "at_ms": 0, "burst": 4, "key": "k", "disturb": "restart" }] }"#;

/// Runs two fixtures on the memory store, and returns the folder with the report.
fn report() -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    let fixtures = folder.path().join("fixtures");
    let about = BURST.replace("ABOUT", HOSTILE);
    for (id, text) in [("bursts/three", about.as_str()), ("store/restart", RESTART)] {
        let file = fixtures.join(id).with_extension("json");
        fs::create_dir_all(file.parent().ok_or("no folder")?)?;
        fs::write(file, text)?;
    }
    let run = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["run", "--target", "memory", "--fixtures"])
        .args([&fixtures, Path::new("--out"), folder.path()])
        .output()?;
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    Ok(folder)
}

/// Opens a page that draws itself, and waits until it has.
async fn open(browser: &Browser, address: &str) -> Result<()> {
    browser.client.goto(address).await?;
    browser.client.wait().for_element(Locator::Css("main:not([hidden])")).await?;
    Ok(())
}

/// A browser whose screen is as wide as that of a small phone.
async fn phone() -> Result<Browser> {
    let screen = json!({ "width": 360, "height": 740, "pixelRatio": 3.0, "touch": true });
    Browser::with(json!({ "mobileEmulation": { "deviceMetrics": screen } })).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_finds_a_fixture_and_opens_its_timeline() -> Result<()> {
    let (folder, browser) = (report()?, Browser::start().await?);
    open(&browser, &format!("file://{}/report.html", folder.path().display())).await?;

    // The first screen tells the result, and the page has loaded nothing else.
    assert_eq!(browser.text("#result").await?, "1 target: ✓ 1 pass");
    assert!(browser.text("#verdicts").await?.contains("unverified"));
    assert_eq!(browser.value("performance.getEntriesByType('resource').length").await?, 0);
    assert_eq!(browser.text("#shown").await?, "2 fixtures of 2");
    let row = browser.text("#targets tbody tr").await?;
    assert!(row.contains("memory") && row.contains("1 pass, 1 unsupported"), "{row}");

    // A group opens on a click, and hostile text stays text.
    assert_eq!(browser.value("document.querySelectorAll('tr.fixture').length").await?, 0);
    browser.click("button[data-group=bursts]").await?;
    assert!(browser.text("tr.fixture th").await?.contains(HOSTILE));
    assert_eq!(browser.value("document.images.length").await?, 0);
    assert!(browser.client.title().await?.starts_with("✓ Tidegate"));

    // A cell opens its timeline, the command that reproduces it, and the reasons.
    browser.click("tr.fixture td button").await?;
    browser.client.wait().for_element(Locator::Css("#cell[open]")).await?;
    assert_eq!(browser.text("#cell-title").await?, "bursts/three");
    let timeline = "document.querySelector('#cell .scroll svg').getAttribute('aria-label')";
    let drawn = "Timeline. at 0 ms check 40: 3 admitted; at 1,000 ms check 2: 2 admitted";
    assert_eq!(browser.value(timeline).await?, drawn);
    let command = browser.text("#cell .command pre").await?;
    assert!(
        command.starts_with("tidegate run --target memory --fixtures ") && command.ends_with("--filter bursts/three")
    );
    let address = browser.client.current_url().await?;
    assert!(address.fragment().is_some_and(|view| view.contains("on=memory&fixture=bursts%2Fthree")), "{address}");
    browser.click("#cell .close").await?;
    assert_eq!(browser.value("document.querySelector('#cell').open").await?, false);

    // A search opens what it finds.
    browser.client.find(Locator::Css("input[name=q]")).await?.send_keys("KILLED").await?;
    assert_eq!(browser.text("#shown").await?, "1 fixture of 2");
    assert_eq!(browser.text("tr.fixture td button").await?, "–");
    browser.click("tr.fixture td button").await?;
    browser.client.wait().for_element(Locator::Css("#cell[open]")).await?;
    let said = browser.text("#cell").await?;
    assert!(said.contains("The emulator, or virtual time, cannot show this."), "{said}");
    assert!(said.contains("no store that can be disturbed from outside in this way"), "{said}");

    // A link leads to the same view, and a phone need not scroll the page sideways.
    browser.client.set_window_size(400, 800).await?;
    let link = format!("file://{}/report.html?phone#verdict=pass", folder.path().display());
    open(&browser, &link).await?;
    assert_eq!(browser.text("#shown").await?, "1 fixture of 2");
    let scrolls = "document.documentElement.scrollWidth > document.documentElement.clientWidth";
    assert_eq!(browser.value(scrolls).await?, false);
    browser.client.close().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_with_a_phone_opens_details_when_they_are_wanted() -> Result<()> {
    let (folder, browser) = (report()?, phone().await?);
    let page = folder.path().join("report.html");
    let fits = "document.documentElement.scrollWidth <= innerWidth && innerWidth === 360";
    open(&browser, &format!("file://{}", page.display())).await?;
    assert_eq!(browser.value(fits).await?, true);
    browser.click("button[data-group=bursts]").await?;
    browser.click("tr.fixture td button").await?;
    browser.client.wait().for_element(Locator::Css("#cell[open]")).await?;
    assert!(browser.text("#cell").await?.contains("offered 42; admitted 5; the reference admits 5"));
    let inside = "(() => { const { left, right } = document.querySelector('#cell').getBoundingClientRect(); return left >= 0 && right <= 360; })()";
    assert_eq!((browser.value(fits).await?, browser.value(inside).await?), (true.into(), true.into()));

    // Without its script, and without what unpacks its details, the page still has the summary.
    let html = fs::read_to_string(&page)?;
    assert!(!html.contains("The store is killed.") && !html.contains("window_ms"), "nothing is packed");
    for (from, to) in
        [("<script type=\"module\">", "<script type=\"text/plain\">"), ("new DecompressionStream", "new Missing")]
    {
        assert!(html.contains(from), "{from}");
        fs::write(&page, html.replace(from, to))?;
        browser.client.goto(&format!("file://{}", page.display())).await?;
        assert_eq!(browser.text("#still tbody tr").await?, "memory exact pass 1 0 1");
        assert_eq!(browser.value(fits).await?, true);
    }
    browser.client.close().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_sees_who_was_denied_and_when() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = |name: &str| folder.path().join(name);
    // A path of one of the lines tries to become markup.
    let lines = (0..9).map(|second| {
        format!(
            "192.0.2.{} - - [01/Jan/2026:00:00:0{second} +0000] \"GET /{HOSTILE} HTTP/1.1\" 200 5 \"-\" \"curl\"\n",
            1 + second / 8
        )
    });
    fs::write(file("access.log"), lines.collect::<String>())?;
    let rules = |limit: u64| {
        json!({ "limits": { "site": { "quotas": [{ "algorithm": "fixed_window", "limit": limit, "window_ms": 60_000 }] } },
            "rules": [{ "name": "all", "limits": ["site"] }] })
    };
    fs::write(file("old.json"), rules(5).to_string())?;
    fs::write(file("new.json"), rules(6).to_string())?;
    let run = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args([
            "replay",
            "--log",
            "access.log",
            "--rules",
            "old.json",
            "--shadow",
            "new.json",
            "--tune",
            "0",
            "--out",
            ".",
        ])
        .current_dir(folder.path())
        .output()?;
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));

    let browser = Browser::start().await?;
    browser.client.set_window_size(400, 800).await?;
    browser.client.goto(&format!("file://{}/replay.html", folder.path().display())).await?;
    assert_eq!(browser.text("#result").await?, "3 of 9 requests (33.3 %) denied, of 1 of 2 clients (50.0 %)");
    assert_eq!(browser.value("performance.getEntriesByType('resource').length").await?, 0);
    let chart = browser.value("document.querySelector('#series svg').getAttribute('aria-label')").await?;
    assert_eq!(chart, "Requests over time. 3 of 9 requests are denied, in 9 steps of 1 s");
    assert_eq!(browser.value("document.querySelectorAll('#series rect.refused').length").await?, 4);
    let all = browser.text("#tables").await?;
    for part in [
        "192.0.2.1 3 8 ~1 2026-01-01 00:00:05 2026-01-01 00:00:07 all site: 3",
        "site fixed_window 2 5 1 (50.0 %) 3 8 0 (0.0 %) 0",
    ] {
        assert!(all.contains(part), "{part}: {all}");
    }
    // On a phone, a date is not broken into columns of three characters.
    let highest = "Math.max(...Array.from(document.querySelectorAll('#tables tr'), (row) => row.offsetHeight))";
    let height = browser.value(highest).await?;
    assert!(height.as_f64().is_some_and(|height| height < 400.0), "{height}");
    // The sixth request is the first that only the old rules deny, and hostile text stays text.
    assert!(all.contains("access.log:6") && all.contains(HOSTILE), "{all}");
    assert_eq!(browser.value("document.images.length").await?, 0);
    let scrolls = "document.documentElement.scrollWidth > document.documentElement.clientWidth";
    assert_eq!(browser.value(scrolls).await?, false);
    browser.client.close().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_sees_what_a_simulation_says_without_scrolling_sideways() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let run = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["simulate", "--seconds", "20", "--rate", "300", "--limit", "20", "--window-ms", "10000", "--out", "."])
        .args(["--design", "durable-object", "--design", "workers-kv", "--design", "kv-counter"])
        .current_dir(folder.path())
        .output()?;
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));

    let browser = Browser::start().await?;
    for (width, height) in [(1280, 900), (390, 800)] {
        browser.client.set_window_size(width, height).await?;
        browser.client.goto(&format!("file://{}/simulation.html", folder.path().display())).await?;
        let result = browser.text("#result").await?;
        assert!(result.starts_with("Only durable-object never exceeds the limit."), "{result}");
        // The price is in the last column but one. That of a million reads and writes of Workers KV is $5.50.
        let outcomes = browser.text("#outcomes").await?;
        assert!(outcomes.contains("466.73 ms 1 5.50"), "{outcomes}");
        // Reads and writes are billed as requests.
        let details = browser.text("#details").await?;
        assert!(details.contains("kv-counter") && details.contains(" 2 2 0 0 0"), "{details}");
        assert!(browser.text("#not-modelled").await?.contains("Computing takes no time"));
        assert!(browser.text("#isolates").await?.contains("memory of its own"));
        for selector in ["html", "#outcomes", "#details", "#waits"] {
            let wide = format!(
                "(() => {{ const part = document.querySelector('{selector}'); return part.scrollWidth > part.clientWidth; }})()"
            );
            assert_eq!(browser.value(&wide).await?, false, "{selector} at {width}");
        }
        let fills =
            "document.querySelector('#chart svg').clientWidth > 0.9 * document.querySelector('#chart').clientWidth";
        assert_eq!(browser.value(fills).await?, true, "the chart at {width}");
    }
    let colours = "Array.from(document.querySelectorAll('#chart path[stroke]'), (path) => path.getAttribute('stroke'))";
    let distinct = format!("(() => {{ const all = {colours}; return [all.length, new Set(all).size]; }})()");
    assert_eq!(browser.value(&distinct).await?, json!([3, 3]));
    browser.client.close().await?;
    Ok(())
}
