// Runs a program for WASI preview 1 on Node.js, as a runner of Cargo: node wasi.mjs PROGRAM ARGUMENT...
import { readFileSync } from "node:fs";
import { argv, exit } from "node:process";
import { WASI } from "node:wasi";

const [, , program, ...args] = argv;
const wasi = new WASI({ version: "preview1", args: [program, ...args], returnOnExit: true });
const { instance } = await WebAssembly.instantiate(readFileSync(program), wasi.getImportObject());
exit(wasi.start(instance));
