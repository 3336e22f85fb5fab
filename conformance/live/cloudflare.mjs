// Cloudflare: one Worker with its objects, a KV namespace and the limits that the fixtures use.

import { readFileSync } from "node:fs";
import path from "node:path";
import { tool } from "./tools.mjs";

const wrangler = tool("wrangler", "wrangler");

/** The limits of the target cloudflare-ratelimit, each with a period of a minute. */
const LIMITS = [1, 2, 10, 60, 100, 999, 1_000];

export default ({ built, folder, found, key, name, root }) => {
  const guest = path.join(root, "conformance/guests/cloudflare");
  const { vars, compatibility_date } = JSON.parse(readFileSync(path.join(guest, "wrangler.jsonc"), "utf8").replace(/^\s*\/\/.*$/gm, ""));
  const config = () => ({
    name,
    main: "worker.mjs",
    compatibility_date,
    workers_dev: true,
    vars,
    durable_objects: { bindings: [{ name: "TIDEGATE", class_name: "Tidegate" }] },
    // Every version of wrangler knows migrations. Those for Node.js before 22.12 do not know `exports`.
    migrations: [{ tag: "v1", new_sqlite_classes: ["Tidegate"] }],
    kv_namespaces: [{ binding: "COUNTS", id: found.namespace }],
    ratelimits: LIMITS.map((limit) => ({ name: `LIMITER_${limit}_60`, namespace_id: String(730_000 + limit), simple: { limit, period: 60 } })),
  });
  const deploy = wrangler("deploy", "--config", "wrangler.json", "--secrets-file", "secrets.json");
  return {
    needs: ["CLOUDFLARE_API_TOKEN"],
    targets: { "cloudflare-do": "/do", "cloudflare-do-leased": "/do-leased", "cloudflare-kv": "/kv", "cloudflare-ratelimit": "/ratelimit" },
    steps: [
      {
        run: wrangler("kv", "namespace", "create", name),
        captures: { namespace: /"?id"?\s*[:=]\s*"([0-9a-f]{32})"/ },
        undo: () => wrangler("kv", "namespace", "delete", "--namespace-id", found.namespace, "--skip-confirmation"),
      },
      {
        files: () => ({
          "wrangler.json": JSON.stringify(config()),
          "secrets.json": JSON.stringify({ TIDEGATE_TEST_MODE: key }),
          // The main module of the Worker, beside what worker-build makes.
          "worker.mjs": readFileSync(path.join(guest, "worker.mjs"), "utf8").replaceAll("./build/", `${built}/`),
        }),
        run: deploy,
        dry: [...deploy, "--dry-run", "--outdir", path.join(folder, "bundled")],
        captures: { url: /(https:\/\/\S+\.workers\.dev)/ },
        undo: wrangler("delete", "--config", "wrangler.json", "--force"),
      },
    ],
    emulator: [
      () => [
        "node",
        path.join(root, "conformance/hosts/cloudflare/serve.mjs"),
        `--guest=${guest}`,
        `--built=${built}`,
        ...LIMITS.map((limit) => `--rate-limit=${limit}/60`),
        "--test-mode",
      ],
    ],
  };
};
