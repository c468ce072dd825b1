// Contrast of each text with what is behind it: axe cannot read mixed colours. Leaves `found` and `seen`.
const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const rgba = (c) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1);
  const d = canvas.getImageData(0, 0, 1, 1).data; return [d[0], d[1], d[2], d[3] / 255]; };
const over = (a, b) => [0, 1, 2].map((i) => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
const behind = (e) => { const own = e ? rgba(getComputedStyle(e).backgroundColor) : [255, 255, 255, 1];
  return own[3] >= 1 || !e ? own : over(own, behind(e.parentElement)); };
const light = (c) => { const [r, g, b] = c.slice(0, 3).map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
let seen = 0;
while (walk.nextNode()) {
  const e = walk.currentNode.parentElement, style = getComputedStyle(e), box = e.getBoundingClientRect();
  if (!walk.currentNode.textContent.trim() || ["SCRIPT", "NOSCRIPT", "STYLE", "TITLE"].includes(e.tagName.toUpperCase())) continue;
  if (!box.width || style.visibility === "hidden" || e.closest(".hidden, .skip")) continue;
  const back = behind(e), ink = over(rgba(e.closest("svg") ? style.fill : style.color), back);
  const [high, low] = [light(ink), light(back)].sort((a, b) => b - a), ratio = (high + 0.05) / (low + 0.05);
  const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
  seen += 1;
  if (ratio < (large ? 3 : 4.5)) found.push(`${ratio.toFixed(2)} ${e.tagName}.${e.className} ${walk.currentNode.textContent.trim().slice(0, 40)}`);
}
