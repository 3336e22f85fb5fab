import { expired, passesMax, tooManyLots } from "../../core/algorithms/balance.js";
import { MAX_INSTANT } from "../../core/arithmetic.js";
import { sha1s as sha1sOfBalance, withBalance } from "./built_balance.js";

// What a balance needs of Redis: see `call.rs` and `answered.rs` of `tidegate-redis`. It loads no module of the store itself.

/** The numbers of the scripts: see `wire.ts`. */
const GENERAL = 0;
const BALANCE = 3;

/** Adds the script of policies with a balance: see `BalanceParts`. */
export function addScript(scripts: string[], sha1s: readonly string[][]): void {
  scripts[BALANCE] ??= withBalance(scripts[GENERAL]!);
  sha1s.forEach((known, nth) => (known[BALANCE] = sha1sOfBalance[nth]!));
}

/** The mode of a reset becomes another one. A grant has a key and words of its own. */
export function adjust({ extra, expires }: { readonly extra: number; readonly expires: number }, rows: string[], words: string[]): void {
  const [mode] = words as [string];
  if (mode.startsWith("x")) words[0] = mode.replace("x", "k");
  if (!mode.startsWith("g")) return;
  words.push(String(Math.min(Math.max(extra, 1), MAX_INSTANT)), String(expires));
  // A check's token with the same text is another one.
  rows.push(rows.pop()!.replace("}:once:", "}:grant:"));
}

/** Why a grant is not made, if the server says so. */
export function refused(answered: string): unknown {
  const [code, why, room] = answered.split(" ");
  if (code !== "GRANT") return undefined;
  return why === "room" ? passesMax(Number(room)) : why === "lots" ? tooManyLots() : expired();
}
