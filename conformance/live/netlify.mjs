// Netlify: a site with an edge function over its own Blobs, and with the package of this checkout.

import { readFileSync } from "node:fs";
import path from "node:path";
import { tool, versions } from "./tools.mjs";

const netlify = tool("netlify-cli", "netlify");

export default ({ built, folder, found, key, name, root }) => {
  const guest = (file) => readFileSync(path.join(root, "conformance/guests/edge", file), "utf8");
  const host = (file) => path.join(root, "conformance/hosts/edge", file);
  const pack = ["npm", "pack", "--silent", "--pack-destination", folder, built];
  return {
    needs: ["NETLIFY_AUTH_TOKEN"],
    targets: { "netlify-blobs": "" },
    steps: [
      { run: pack, dry: pack, captures: { package: /(\S+\.tgz)/ } },
      {
        files: () => ({
          "package.json": JSON.stringify({ private: true, type: "module", dependencies: { "@netlify/blobs": versions["@netlify/blobs"], "@tidegate/edge": `file:${found.package}` } }),
          "netlify.toml": '[build]\npublish = "public"\n[[edge_functions]]\npath = "/*"\nfunction = "blobs"\n',
          "public/index.html": "",
          "netlify/edge-functions/blobs.mjs": guest("blobs.mjs").replace("./suite.mjs", "../suite.mjs"),
          "netlify/suite.mjs": guest("suite.mjs"),
          ".env": `PLATFORM=netlify\nTIDEGATE_TEST_MODE=${key}\n`,
        }),
        // Nothing of these packages runs with the account's token in its environment.
        run: ["npm", "install", "--silent", "--ignore-scripts"],
      },
      {
        run: netlify("sites:create", "--name", name, "--json"),
        captures: { site: /"(?:site_)?id":\s*"([\w-]+)"/ },
        undo: () => netlify("sites:delete", found.site, "--force"),
      },
      { run: () => netlify("env:import", ".env", "--site", found.site) },
      { run: () => netlify("deploy", "--build", "--prod", "--site", found.site), captures: { url: /(https:\/\/[\w-]+\.netlify\.app)/ } },
    ],
    emulator: [
      () => ["node", host("blobs-server.mjs")],
      (blobs) => ["node", host("deno.mjs"), "--guest", "blobs.mjs", "--env", `BLOBS_URL=${blobs}`, "--env", "PLATFORM=netlify", "--test-mode"],
    ],
  };
};
