// Akamai Functions: a Spin app with the account's key-value store. It needs `spin` and its plugin `aka`, and `spin aka login`.

import path from "node:path";

export default ({ built, key, name, root }) => {
  const manifest = `spin_manifest_version = 2
[application]
name = "${name}"
version = "0.1.0"
[[trigger.http]]
route = "/..."
component = "limited"
[component.limited]
source = "${built}"
key_value_stores = ["default"]
[component.limited.environment]
STORE = "default"
TIDEGATE_TEST_MODE = "${key}"
`;
  return {
    needs: [],
    targets: { "spin-kv": "/kv" },
    steps: [
      {
        files: () => ({ "spin.toml": manifest }),
        run: ["spin", "aka", "deploy", "--create-name", name, "--no-confirm"],
        captures: { url: /(https:\/\/[\w.-]+)/ },
        undo: ["spin", "aka", "app", "delete", "--app-name", name, "--no-confirm"],
      },
    ],
    emulator: [
      () => [
        path.join(root, "target/hosts/release/tidegate-host-spin"),
        `--manifest=${path.join(root, "conformance/guests/spin/spin.toml")}`,
        `--component=${built}`,
        "--test-mode",
      ],
    ],
  };
};
