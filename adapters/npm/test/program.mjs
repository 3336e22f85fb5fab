// Runs the command lines that it is sent, in a folder, and sends back what they print and their exit codes: all in one process, because
// to start one takes longer than all else.

import { program } from "../modules/program/program.js";

process.chdir(process.argv[2]);
process.on("message", async (words) => {
  const printed = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"]) process[name].write = (text) => ((printed[name] += text), true);
  const code = await program(words);
  process.send({ ...printed, code });
});
