import path from "node:path";

/** One file for Node.js, with all packages in it. */
export default {
  mode: "production",
  target: "node20",
  entry: "./index.js",
  experiments: { outputModule: true },
  output: { path: path.join(import.meta.dirname, "dist"), filename: "main.mjs", library: { type: "module" }, clean: true },
};
