// A user's module with a store, or with a function that opens one.

import { existsSync } from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { FUNCTIONS, type VersionedStore } from "../versioned_store.js";
import { said } from "../store.js";
import { Usage } from "./failure.js";

/** A store, and what closes its connections. */
export interface Opened {
  readonly store: VersionedStore;
  close(): Promise<void>;
}

const RIGHT = "export default { read, create, update, delete }, or an async function that returns it";

/** Loads a module. Throws a `Usage` that says what is missing. */
export async function openedFrom(file: string): Promise<Opened> {
  if (!existsSync(file)) throw new Usage(`${file}: No such file or directory; name the module with your store`);
  const module = await loaded(file);
  const { default: exported = module["store"], close } = module;
  const store: unknown = typeof exported === "function" ? await called(file, exported as () => unknown) : exported;
  const lacking = FUNCTIONS.filter((name) => typeof Object(store)[name] !== "function");
  if (lacking.length > 0) throw new Usage(`${file}: the store has no function ${lacking.join(", ")}; write ${RIGHT}`);
  return {
    store: store as VersionedStore,
    async close() {
      if (typeof close === "function") await close();
    },
  };
}

async function loaded(file: string): Promise<Record<string, unknown>> {
  try {
    return (await import(pathToFileURL(path.resolve(file)).href)) as Record<string, unknown>;
  } catch (thrown) {
    const { code } = Object(thrown) as NodeJS.ErrnoException;
    const hint = code === "ERR_UNKNOWN_FILE_EXTENSION" ? "; Node.js 22.18 or newer loads TypeScript, or compile it first" : "";
    throw new Usage(`${file}: it cannot be loaded: ${said(thrown)}${hint}`);
  }
}

async function called(file: string, open: () => unknown): Promise<unknown> {
  try {
    return await open();
  } catch (thrown) {
    throw new Usage(`${file}: the function that opens the store has thrown ${said(thrown)}`);
  }
}
