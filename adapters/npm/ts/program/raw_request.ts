/** A request as it arrived. */
export interface Arrived {
  readonly method: string;
  readonly path: string;
  readonly host: string | undefined;
  /** In order, one entry per value. */
  readonly headers: readonly (readonly [name: string, value: string])[];
}

/** A request for a gate. It has what a `Request` would change or refuse: its path, its method and its fields as they arrived. */
export function arrivedWith({ method, path, host = "", headers }: Arrived): Request {
  // Each character of a field's value is a byte.
  const values = headers.map(([name, value]) => [name.toLowerCase(), Buffer.from(value).toString("latin1")] as const);
  const get = (name: string) => {
    const found = values.filter(([known]) => known === name.toLowerCase()).map(([, value]) => value);
    return found.length > 0 ? found.join(", ") : null;
  };
  return { method, url: `https://${host}${path}`, headers: { get } } as unknown as Request;
}
