import { nearest } from "../../nearest_name.js";
import { quoted } from "./quoted_text.js";

/** The end of a message about an unknown name: the nearest known name, if one is near, and all of them. */
export function suggestion(unknown: string, known: readonly string[]): string {
  const all = `rite one of ${known.map(quoted).join(", ")}`;
  const near = nearest(unknown, known);
  return near === undefined ? `w${all}` : `did you mean ${quoted(near)}? W${all}`;
}
