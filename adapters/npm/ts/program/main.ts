#!/usr/bin/env node
// `tidegate`, the program of the package: see `npx @tidegate/edge --help`.

import { program } from "./program.js";

// Whoever reads the output may stop to.
for (const stream of [process.stdout, process.stderr]) stream.on("error", () => undefined);

process.exitCode = await program(process.argv.slice(2));
