import { readFileSync } from "node:fs";
import { getSystemErrorMap } from "node:util";
import { Usage } from "./failure.js";

/** The texts of an operating system for what often goes wrong. */
const TEXTS: Readonly<Record<string, string>> = {
  ENOENT: "No such file or directory",
  EACCES: "Permission denied",
  EISDIR: "Is a directory",
  ENOTDIR: "Not a directory",
};

/** Why a file cannot be read or written. */
export function reason(thrown: unknown): string {
  const { code = "", errno = 0, message } = thrown as NodeJS.ErrnoException;
  const text = TEXTS[code] ?? getSystemErrorMap().get(errno)?.[1];
  return text === undefined ? message : `${text} (os error ${-errno})`;
}

/** The text of a file. */
export function textOf(file: string): string {
  try {
    return decoded(readFileSync(file));
  } catch (thrown) {
    throw thrown instanceof TypeError ? new Usage(`${file}: stream did not contain valid UTF-8`) : new Usage(`${file}: ${reason(thrown)}`);
  }
}

/** Throws a `TypeError` for what is not UTF-8. */
function decoded(bytes: Uint8Array): string {
  return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
}
