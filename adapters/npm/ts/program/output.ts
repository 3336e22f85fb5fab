/** Prints a line on standard output. */
export function outln(line: string): void {
  process.stdout.write(`${line}\n`);
}

/** Prints a line on standard error. */
export function errln(line: string): void {
  process.stderr.write(`${line}\n`);
}

/** A number of something, in words. */
export function counted(count: number, what: string): string {
  return count === 1 ? `1 ${what}` : `${count} ${what}s`;
}
