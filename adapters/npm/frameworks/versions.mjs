// The versions that an app is installed with: locked ones, or the newest.

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";

/** Locked are the exact versions in each `package.json`, and of what they need in turn the newest before this day. */
export const LOCKED = "2026-11-21";

/** npm's option for it. */
export const before = (newest) => (newest ? "" : `--before ${LOCKED}`);

const KINDS = ["dependencies", "devDependencies"];

/** A `package.json` that takes the newest compatible version of each dependency. */
export function newestOf(manifest) {
  const caret = (versions) => Object.fromEntries(Object.entries(versions).map(([name, version]) => [name, `^${version}`]));
  return { ...manifest, ...Object.fromEntries(KINDS.filter((kind) => manifest[kind]).map((kind) => [kind, caret(manifest[kind])])) };
}

/** Changes the `package.json` of a folder to it. */
export function takeNewest(folder) {
  const file = path.join(folder, "package.json");
  writeFileSync(file, JSON.stringify(newestOf(JSON.parse(readFileSync(file, "utf8"))), null, 2));
}

/** The versions that npm has installed in a folder, by their places. There are none if it could not. */
export function installedIn(folder) {
  const file = path.join(folder, "node_modules/.package-lock.json");
  const { packages } = existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : { packages: {} };
  return Object.fromEntries(Object.entries(packages).map(([place, { version }]) => [place.replace("node_modules/", ""), version]));
}

/**
 * What differs between two of them, in words: the app's own dependencies, or, if these are the same, what they need in turn. If nothing is
 * installed now, it is the app's own.
 */
export function differences(worked, now, manifest) {
  const own = KINDS.flatMap((kind) => Object.keys(manifest[kind] ?? {})).filter((name) => worked[name] !== undefined);
  const changed = Object.keys(worked).filter((place) => now[place] !== undefined && now[place] !== worked[place]);
  const changedOwn = changed.filter((place) => own.includes(place));
  const told = [changedOwn, changed, own].find((places) => places.length > 0) ?? [];
  const shown = told.map((place) => `${place} ${worked[place]}${now[place] === undefined ? "" : ` (now ${now[place]})`}`);
  return shown.length > 8 ? `${shown.slice(0, 8).join(", ")} and ${shown.length - 8} others` : shown.join(", ");
}
