// Vercel: a project with an edge function over a database at Upstash, and with the package of this checkout.

import { readFileSync } from "node:fs";
import path from "node:path";
import { tool } from "./tools.mjs";

const STORE = ["UPSTASH_REDIS_REST_URL", "UPSTASH_REDIS_REST_TOKEN"];

const vercel = tool("vercel", "vercel");

export default ({ built, folder, found, key, name, root }) => {
  const guest = (file) => readFileSync(path.join(root, "conformance/guests/edge", file), "utf8");
  const pack = ["npm", "pack", "--silent", "--pack-destination", folder, built];
  const variables = { ...Object.fromEntries(STORE.map((variable) => [variable, process.env[variable]])), PLATFORM: "vercel", TIDEGATE_TEST_MODE: key };
  return {
    needs: ["VERCEL_TOKEN", ...STORE],
    targets: { vercel: "" },
    steps: [
      { run: pack, dry: pack, captures: { package: /(\S+\.tgz)/ } },
      {
        files: () => ({
          "package.json": JSON.stringify({ name, private: true, type: "module", dependencies: { "@tidegate/edge": `file:${found.package}` } }),
          "vercel.json": JSON.stringify({ rewrites: [{ source: "/(.*)", destination: "/api" }] }),
          "api/index.js": `${guest("upstash.mjs").replace("./suite.mjs", "../suite.mjs")}\nexport const config = { runtime: "edge" };\n`,
          "suite.mjs": guest("suite.mjs"),
        }),
        run: vercel("link", "--yes", "--project", name),
        undo: vercel("project", "remove", name, "--yes"),
      },
      ...Object.entries(variables).map(([variable, value]) => ({ run: [...vercel("env", "add", variable, "production", "--yes"), { input: value }] })),
      { run: vercel("deploy", "--prod", "--yes"), captures: { url: /(https:\/\/\S+\.vercel\.app)/ } },
    ],
    emulator: [
      () => [
        "node",
        path.join(root, "conformance/hosts/edge/edge-runtime.mjs"),
        ...["--guest", "upstash.mjs", "--env", "PLATFORM=vercel", "--test-mode"],
        // Their values are those of this process: every user of the machine can read the arguments of a process.
        ...STORE.flatMap((variable) => ["--env", variable]),
      ],
    ],
  };
};
