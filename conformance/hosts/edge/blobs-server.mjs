// Serves Netlify Blobs from a temporary folder:
//
//   node blobs-server.mjs
//
// This is the BlobsServer of @netlify/blobs with two properties of Netlify's own service. Every value has an ETag,
// which is derived from the value and not from the file's time, because two writes may have the same time. Conditional
// writes are atomic.
//
// It prints its address. It answers each line on standard input with the number of requests so far, and ends when
// standard input closes.

import { createHash } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { BlobsServer } from "@netlify/blobs/server";

class Blobs extends BlobsServer {
  requests = 0;
  #last = Promise.resolve();

  handleRequest(request) {
    this.requests += 1;
    const answer = this.#last.then(() => super.handleRequest(request));
    this.#last = answer.catch(() => undefined);
    return answer;
  }

  async get(request) {
    const response = await super.get(request);
    const { dataPath } = this.getLocalPaths(new URL(request.url, this.address));
    if (response.status === 200 && dataPath) response.headers.set("etag", await BlobsServer.generateETag(dataPath));
    return response;
  }
}

BlobsServer.generateETag = async (file) => {
  const value = await readFile(file).catch(() => undefined);
  return value ? `"${createHash("sha256").update(value).digest("hex")}"` : "";
};

const directory = mkdtempSync(path.join(tmpdir(), "tidegate-blobs-"));
const server = new Blobs({ directory, token: "conformance" });
const { port } = await server.start();
console.log(`http://127.0.0.1:${port}`);

for await (const _ of createInterface({ input: process.stdin })) console.log(server.requests);
await server.stop();
rmSync(directory, { recursive: true, force: true });
process.exit(0);
