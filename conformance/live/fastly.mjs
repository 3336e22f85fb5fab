// Fastly Compute: a service on a free domain, with a KV Store and the setting that has the key.

import path from "node:path";
import { tool } from "./tools.mjs";

const cli = tool("@fastly/cli", "fastly");
const fastly = (...words) => cli(...words, "--non-interactive");

export default ({ built, found, key, name, root }) => {
  const manifest = `manifest_version = 3\nname = "${name}"\nlanguage = "other"\n`;
  const domain = `${name}.edgecompute.app`;
  const id = /"?(?:id|ID)"?:\s*"?(\w{10,})/;
  const store = (kind, suffix, as) => ({
    run: fastly(`${kind}-store`, "create", "--name", `${name}-${suffix}`, "--json"),
    captures: { [as]: id },
    undo: () => fastly(`${kind}-store`, "delete", "--store-id", found[as], ...(kind === "kv" ? ["--all"] : [])),
  });
  const link = (as, alias) => ({
    run: () => fastly("resource-link", "create", "--version", "1", "--service-id", found.service, "--resource-id", found[as], "--name", alias),
  });
  return {
    needs: ["FASTLY_API_TOKEN"],
    targets: { "fastly-kv": "/kv", "fastly-erl": "/erl" },
    url: `https://${domain}`,
    steps: [
      { files: () => ({ "fastly.toml": manifest }), run: fastly("compute", "pack", "--wasm-binary", built), dry: fastly("compute", "pack", "--wasm-binary", built) },
      { run: fastly("compute", "validate", "--package", `pkg/${name}.tar.gz`), dry: fastly("compute", "validate", "--package", `pkg/${name}.tar.gz`) },
      store("kv", "counts", "counts"),
      store("config", "mode", "mode"),
      { run: () => [...fastly("config-store-entry", "create", "--store-id", found.mode, "--key", "mode", "--stdin"), { input: key }] },
      {
        run: fastly("service", "create", "--name", name, "--type", "wasm"),
        captures: { service: /Created service (\w+)/ },
        undo: () => fastly("service", "delete", "--force", "--service-id", found.service),
      },
      { run: () => fastly("service", "domain", "create", "--version", "1", "--service-id", found.service, "--name", domain) },
      link("counts", "tidegate"),
      link("mode", "tidegate_test"),
      { run: () => fastly("compute", "update", "--version", "1", "--service-id", found.service, "--package", `pkg/${name}.tar.gz`) },
      { run: () => fastly("service", "version", "activate", "--version", "1", "--service-id", found.service) },
    ],
    emulator: [
      () => [
        path.join(root, "target/hosts/release/tidegate-host-fastly"),
        `--guest=${built}`,
        `--manifest=${path.join(root, "conformance/guests/fastly/fastly.toml")}`,
        "--test-mode",
      ],
    ],
  };
};
