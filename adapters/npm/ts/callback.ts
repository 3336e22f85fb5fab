/** Calls a callback of the application. The async function turns anything that it throws into a rejection. */
export function quietly(callback: () => unknown): void {
  (async () => callback())().catch(() => undefined);
}
