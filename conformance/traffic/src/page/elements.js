// What the pages are built of. Elements are built without innerHTML, so that no text in a report becomes markup.

const $ = (selector) => document.querySelector(selector);

const whole = new Intl.NumberFormat("en");
const number = (value) => whole.format(value);
const plural = (many, what) => `${number(many)} ${what}${many === 1 ? "" : "s"}`;

/** Creates an element. Children are elements or text; `null` is left out. */
function h(name, attributes = {}, ...children) {
  const svg = ["svg", "g", "rect", "path", "text", "line", "circle", "defs", "pattern", "title"].includes(name);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value != null) element.setAttribute(key, value);
  }
  element.append(...children.flat().filter((child) => child != null));
  return element;
}

const svg = (width, height, label, ...children) =>
  h("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, ...children);

/** The part of the data in the element with this id. */
async function unpacked(id) {
  const bytes = Uint8Array.from(atob($(`#${id}`).textContent), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

