//! Certificates that nobody but a test trusts, made by openssl.

use std::path::Path;
use std::process::{Command, Stdio};

/// Makes an authority: `NAME.key` and `NAME.crt`.
pub fn authority(dir: &Path, name: &str) {
    requested(dir, name, name);
    openssl(dir, &format!("x509 -req -in {name}.csr -signkey {name}.key -out {name}.crt"));
}

/// Makes a certificate of an authority for a host: `NAME.key` and `NAME.crt`.
pub fn certificate(dir: &Path, authority: &str, name: &str, host: &str) {
    requested(dir, name, host);
    std::fs::write(dir.join("names"), format!("subjectAltName=DNS:{host}\n")).unwrap();
    let by = format!("-CA {authority}.crt -CAkey {authority}.key -CAcreateserial");
    openssl(dir, &format!("x509 -req -in {name}.csr {by} -out {name}.crt -extfile names"));
}

fn requested(dir: &Path, name: &str, subject: &str) {
    openssl(dir, &format!("req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr -subj /CN={subject}"));
}

fn openssl(dir: &Path, arguments: &str) {
    let mut command = Command::new("openssl");
    let status =
        command.args(arguments.split(' ')).current_dir(dir).stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(status.expect("this test needs openssl: apt-get install openssl").success(), "openssl {arguments}");
}
