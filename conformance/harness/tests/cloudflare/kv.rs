//! Tests of Workers KV: what decisions cost, what corrupt values and refused writes do, and what a plain counter would admit.

use futures_util::future::join_all;
use serde_json::Value;

use super::{Asked, DEBUG, DEPLOYED, Result, START_MS, ask, bases, count, page, start};

const MINUTE_MS: u64 = 60_000;

/// Returns one of the statistics that an isolate reports about Workers KV.
async fn stat(base: &str, name: &str) -> Result<u64> {
    let (_, stats) = page(base, "/debug/kv/stats", "192.0.2.1").await?;
    let figure = stats.split([' ', ',']).skip_while(|word| word.trim_end_matches(':') != name).nth(1);
    Ok(figure.ok_or_else(|| format!("no {name} in {stats}"))?.parse()?)
}

#[tokio::test]
async fn a_corrupt_value_is_treated_as_absent_and_reported_in_the_statistics() -> Result<()> {
    let host = start(&["--isolates=2", DEBUG]).await?;
    let bases = bases(&host);
    let check = Asked::check("kv", "k", 3);
    assert_eq!(check.burst(&bases[0], 10).await?, 3);
    host.tell("corrupt").await?;
    // A key has four values, and each read selects the next one.
    for second in 0..4 {
        let later = check.peek().at_ms(2 * MINUTE_MS + 1_000 * second);
        assert_eq!(later.of(&bases[1]).await?.0, 200);
    }
    assert_eq!(stat(&bases[1], "corrupt").await?, 1);
    let later = check.at_ms(3 * MINUTE_MS);
    assert_eq!(
        (later.burst(&bases[1], 10).await?, later.burst(&bases[0], 10).await?),
        (3, 0),
        "each location admits its own limit"
    );
    host.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_throttled_write_causes_no_error_and_is_repeated_later() -> Result<()> {
    let host = start(&["--isolates=3", DEBUG]).await?;
    let bases = bases(&host);
    let keys: Vec<String> = (0..20).map(|number| format!("k{number}")).collect();
    // All requests arrive at one instant, so some of a key's four values are written twice.
    for key in &keys {
        for base in &bases {
            assert_eq!(Asked::check("kv", key, 1_000).of(base).await?.0, 200);
        }
    }
    let throttled = count(&host, "kvThrottled").await?;
    let mut told = 0;
    for base in &bases {
        told += stat(base, "writes_throttled").await?;
    }
    assert!(throttled > 0);
    assert_eq!(told, throttled);
    // Refused writes are repeated later, even by a request for another key. In the end, every location knows all
    // counts.
    let all_know = async |round: u64| -> Result<bool> {
        let mut know = true;
        for (place, base) in (0..).zip(&bases) {
            let at_ms = 20_000 * round + 2_000 * place;
            for key in &keys {
                let (_, body) = Asked::check("kv", key, 1_000).peek().at_ms(at_ms).of(base).await?;
                let answer: Value = serde_json::from_str(&body)?;
                know &= answer["decision"]["quotas"][0]["remaining"] == 1_000 - 3;
            }
            Asked::check("kv", "another", 1_000).at_ms(at_ms).of(base).await?;
        }
        Ok(know)
    };
    let mut round = 1;
    while !all_know(round).await? {
        round += 1;
        assert!(round < 90, "half an hour later, some location does not know all counts");
    }
    host.stop().await;
    Ok(())
}

#[tokio::test]
async fn ten_decisions_per_second_take_at_most_one_read_and_one_write_per_second() -> Result<()> {
    let host = start(&[]).await?;
    let base = &bases(&host)[0];
    for decision in 0..600 {
        assert_eq!(Asked::check("kv", "k", 1_000).at_ms(100 * decision).of(base).await?.0, 200);
    }
    let (reads, writes) = (count(&host, "kvReads").await?, count(&host, "kvWrites").await?);
    println!("600 decisions, 10 per second: {reads} reads, {writes} writes");
    assert!((1..=60).contains(&reads), "{reads}");
    assert!((1..=60).contains(&writes), "{writes}");
    host.stop().await;
    Ok(())
}

#[tokio::test]
async fn counts_are_written_after_the_response() -> Result<()> {
    let host = start(&[DEPLOYED]).await?;
    assert_eq!(page(&bases(&host)[0], "/kv", "192.0.2.1").await?.0, 200);
    while count(&host, "kvWrites").await? == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(count(&host, "kvWrites").await?, 1);
    host.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_counter_that_gets_and_puts_exceeds_the_limit_by_the_burst() -> Result<()> {
    const LIMIT: u64 = 60;
    const REQUESTS: usize = 200;
    let host = start(&["--isolates=3"]).await?;
    let bases = bases(&host);
    let hosts = host.tell("hosts").await?;
    let plain = async |place: usize, at_ms: u64| -> Result<u64> {
        let base = hosts[place].as_str().ok_or("no host")?;
        let url = format!("{base}plain?key=k&limit={LIMIT}&now={}", START_MS + at_ms);
        let answers = join_all((0..REQUESTS).map(|_| ask("GET", &url, None, String::new()))).await;
        let bodies = answers.into_iter().collect::<Result<Vec<_>>>()?;
        Ok(bodies.iter().filter(|(_, body)| body == r#"{"allowed":true}"#).count() as u64)
    };
    let (mut ours, mut theirs) = ([0; 3], [0; 3]);
    for (round, at_ms) in [0, 10_000, 5 * MINUTE_MS].into_iter().enumerate() {
        for (place, base) in bases.iter().enumerate() {
            ours[round] += Asked::check("kv", "k", LIMIT).at_ms(at_ms).burst(base, REQUESTS).await?;
            theirs[round] += plain(place, at_ms).await?;
        }
    }
    println!("3 locations, limit {LIMIT}, bursts of {REQUESTS} at each, at once, after 10 s, after 5 min:");
    println!("Tidegate admits {ours:?}, a counter that gets and puts {theirs:?}");
    assert!(ours.iter().sum::<u64>() <= 3 * LIMIT);
    assert!(theirs.iter().sum::<u64>() > 2 * 3 * LIMIT);
    host.stop().await;
    Ok(())
}
