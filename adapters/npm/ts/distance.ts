/** How many letters of a word are added, left out, replaced, or swapped with the next one: its distance from another. */
export function distance(word: string, otherWord: string): number {
  const [one, other] = [[...word], [...otherWord]];
  let [before, last]: [number[], number[]] = [[], [...Array(other.length + 1).keys()]];
  one.forEach((letter, line) => {
    const row = [line + 1];
    other.forEach((wanted, column) => {
      const isSwapped = line > 0 && column > 0 && one[line - 1] === wanted && letter === other[column - 1];
      const swapped = isSwapped ? before[column - 1]! + 1 : Infinity;
      row.push(Math.min(swapped, row[column]! + 1, last[column + 1]! + 1, last[column]! + Number(letter !== wanted)));
    });
    [before, last] = [last, row];
  });
  return last[other.length]!;
}
