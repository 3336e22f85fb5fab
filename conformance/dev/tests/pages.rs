//! Start pages are followed as they are printed.

use std::fs;
use std::net::TcpListener;

use tempfile::TempDir;
use tidegate_dev::pages::{Page, Session, all};
use tidegate_harness::target::workspace;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A server that denies each second request, and two requests.
const PAGE: &str = r#"
Make a folder:

```sh
mkdir app && cd app
export GREETING=hello
```

Write `server.mjs`:

```js
import { createServer } from "node:http";

let served = 0;
const server = createServer((request, response) => {
  response.statusCode = (served++ % 2) ? 429 : 200;
  response.end(process.env.GREETING);
});
server.listen(8080, "127.0.0.1");
```

```sh server
node server.mjs
```

```sh
for n in 1 2; do curl --silent --write-out ' %{http_code}\n' localhost:8080; done
```

prints

```text
hello 200
… 429
```
"#;

fn follow(page: &str) -> Result<std::result::Result<(), String>> {
    let folder = TempDir::new()?;
    let file = folder.path().join("greeting.md");
    fs::write(&file, page)?;
    let page = Page::read(&file)?;
    let followed = Session::new(&page, &workspace(), folder.path(), |_| {})?.follow();
    Ok(followed.map(|outcome| assert!(outcome.limited_after.is_some())))
}

#[test]
fn a_page_works_if_its_commands_print_what_it_shows() -> Result<()> {
    // Its port is taken, as on a machine where others run.
    let _taken = TcpListener::bind("127.0.0.1:8080");
    follow(PAGE)??;
    Ok(())
}

#[test]
fn a_page_fails_if_a_reader_would() -> Result<()> {
    for (right, wrong, said) in [
        ("… 429", "… 200", "the page shows:"),
        ("node server.mjs", "node sever.mjs", "listens on no port"),
        ("cd app", "cd ap", "exit status: 1"),
        ("export GREETING=hello", "GREETING=hello", "this was printed:"),
        ("(served++ % 2) ? 429 : 200", "200", "| hello 200\n  | hello 200"),
    ] {
        assert_eq!(PAGE.matches(right).count(), 1, "{right}");
        let Err(why) = follow(&PAGE.replace(right, wrong))? else { return Err(format!("{wrong} works").into()) };
        assert!(why.contains(said), "{wrong}: {why}");
    }
    Ok(())
}

/// The npm package's tests follow pages that need it. `cargo make pages` follows all, some of which need a platform's host.
#[test]
fn the_page_of_axum_works() -> Result<()> {
    let folder = TempDir::new()?;
    let pages = all(&workspace())?;
    let page = pages.iter().find(|page| page.name == "axum").ok_or("there is no page of axum")?;
    let outcome = Session::new(page, &workspace(), folder.path(), |_| {})?.follow()?;
    assert!(outcome.limited_after.is_some());
    Ok(())
}

#[test]
fn each_start_page_shows_files() -> Result<()> {
    let pages = all(&workspace())?;
    assert!(pages.len() > 8, "{} pages", pages.len());
    for page in pages {
        assert!(page.files() > 0, "{} shows no file", page.name);
    }
    Ok(())
}
