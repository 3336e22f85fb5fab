// The clock of the peers. It must be imported before them: it replaces `Date` and the timers.
//
// Time is what the last request says. A Redis server reads it from a file.

import { renameSync, writeFileSync } from "node:fs";
import FakeTimers from "@sinonjs/fake-timers";

const clock = FakeTimers.install({
  now: 0,
  toFake: ["Date", "setTimeout", "clearTimeout", "setInterval", "clearInterval"],
});

/** The longest time that passes step by step. Beyond it, another fixture has begun, and no timer of its matters. */
const STEPWISE_MAX_MS = 30 * 86_400_000;

/** Returns a function that lets time pass until an instant, here and in the file, if there is one. */
export function clockIn(file) {
  let at;
  return (now) => {
    if (now === at) return;
    at = now;
    const passes = now > clock.now && now - clock.now < STEPWISE_MAX_MS;
    passes ? clock.tick(now - clock.now) : clock.setSystemTime(now);
    if (file === undefined) return;
    // Several processes write the same time. The server must never see a part of it.
    const own = `${file}.${process.pid}`;
    writeFileSync(own, new Date(now).toISOString().replace("T", " ").replace("Z", ""));
    renameSync(own, file);
  };
}
