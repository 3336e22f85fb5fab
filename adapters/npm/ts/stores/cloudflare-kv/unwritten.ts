/** A key with counts to write, and since when. */
export interface Due {
  at: number;
  name: string;
}

/** The keys with counts to write, as a heap: the first is due first. */
export class Unwritten {
  readonly #heap: Due[] = [];

  get size(): number {
    return this.#heap.length;
  }

  get first(): Due | undefined {
    return this.#heap[0];
  }

  push(due: Due): void {
    const heap = this.#heap;
    let place = heap.length;
    for (let above = (place - 1) >> 1; place > 0 && isBefore(due, heap[above]!); above = (place - 1) >> 1) {
      heap[place] = heap[above]!;
      place = above;
    }
    heap[place] = due;
  }

  pop(): Due | undefined {
    const heap = this.#heap;
    const [first, last] = [heap[0], heap.pop()];
    if (!last || heap.length === 0) return first;
    let place = 0;
    for (let below = 1; below < heap.length; below = 2 * place + 1) {
      if (below + 1 < heap.length && isBefore(heap[below + 1]!, heap[below]!)) below += 1;
      if (!isBefore(heap[below]!, last)) break;
      heap[place] = heap[below]!;
      place = below;
    }
    heap[place] = last;
    return first;
  }
}

function isBefore(one: Due, other: Due): boolean {
  return one.at === other.at ? one.name < other.name : one.at < other.at;
}
