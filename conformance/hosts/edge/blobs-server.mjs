// Serves Netlify Blobs from a temporary folder:
//
//   node blobs-server.mjs
//
// This is the BlobsServer of @netlify/blobs with two properties of Netlify's own service. Every value has an ETag,
// which is derived from the value and not from the file's time, because two writes may have the same time. Conditional
// writes are atomic. A read returns no metadata.
//
// It prints its address, and ends when standard input closes. It answers lines on standard input:
//
// - `count`: with the number of requests so far.
// - `lose COUNT`: the next `COUNT` writes are made, and answered with an error. Answered as `lost`.
// - `lost`: how many were so far.

import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { BlobsServer } from "@netlify/blobs/server";

class Blobs extends BlobsServer {
  requests = 0;
  toLose = 0;
  lost = 0;
  #last = Promise.resolve();

  handleRequest(request) {
    this.requests += 1;
    // A write replaces the whole file at once, so a read needs no turn.
    if (request.method === "GET") return super.handleRequest(request);
    const answer = this.#last.then(() => super.handleRequest(request));
    this.#last = answer.catch(() => undefined);
    return answer.then((made) => this.#answered(made));
  }

  /** The answer to a write, or an error in its place. */
  #answered(answer) {
    if (!answer.ok || this.toLose === 0) return answer;
    this.toLose -= 1;
    this.lost += 1;
    return new Response("the answer is lost", { status: 500 });
  }

  async get(request) {
    const { pathname } = new URL(request.url, this.address);
    const { dataPath, key } = this.getLocalPaths({ pathname });
    if (!key || pathname.startsWith("/api/")) return super.get(request);
    const value = read(dataPath);
    return value ? new Response(value, { headers: { etag: etag(value) } }) : new Response(null, { status: 404 });
  }
}

BlobsServer.generateETag = async (file) => {
  const value = read(file);
  return value ? etag(value) : "";
};

/** The files are small. To read one at once takes less time than to hand it to another thread and back. */
function read(file) {
  try {
    return readFileSync(file);
  } catch {
    return undefined;
  }
}

function etag(value) {
  return `"${createHash("sha256").update(value).digest("hex")}"`;
}

const directory = mkdtempSync(path.join(tmpdir(), "tidegate-blobs-"));
const server = new Blobs({ directory, token: "conformance" });
const { port } = await server.start();
console.log(`http://127.0.0.1:${port}`);

const words = {
  count: () => server.requests,
  lose: (count) => {
    server.toLose = Number(count);
    return server.lost;
  },
  lost: () => server.lost,
};
for await (const line of createInterface({ input: process.stdin })) {
  const [word, ...rest] = line.split(" ");
  console.log(words[word](...rest));
}
await server.stop();
rmSync(directory, { recursive: true, force: true });
process.exit(0);
