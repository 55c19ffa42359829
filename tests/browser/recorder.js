// The tests run this in the page. It records the position and colour of every word, frame by frame.
window.recorder = (() => {
  const scroller = document.querySelector("#transcript");
  /** The last mark, and the function to call for the next one. A mark is a warning of the server, which the page logs. */
  let mark = -1;
  let waiting = () => {};
  const warn = console.warn;
  console.warn = (text) => {
    const found = /^mark: (\d+)$/.exec(text);
    if (found === null) {
      warn(text);
    } else {
      mark = Number(found[1]);
      waiting();
    }
  };

  /** When the recording began. Entries come late, and those of earlier frames do not count. */
  let begun = Infinity;
  const begin = () => {
    begun = performance.now();
  };

  const shifts = [];
  new PerformanceObserver((list) => {
    for (const { value, sources } of list.getEntries().filter(({ startTime }) => startTime >= begun)) {
      // When an utterance ends, the box of the open lines moves down. The frames have the positions of their words.
      const nodes = sources.map(({ node }) => node).filter((node) => node?.id !== "live");
      if (nodes.length > 0) {
        shifts.push({ value, mark, nodes: nodes.map((node) => node?.textContent) });
      }
    }
  }).observe({ type: "layout-shift" });

  const nextFrame = () => new Promise((resolve) => requestAnimationFrame(resolve));

  /** Waits until everything before this mark has been drawn. */
  async function drawn(number) {
    await new Promise((resolve) => {
      waiting = () => mark >= number && resolve();
      waiting();
    });
    await nextFrame();
    await nextFrame();
    return frame();
  }

  /** The words of a line, in pieces of one colour. Positions are relative to the text, not to the window. */
  function words(text, origin) {
    const nodes = [];
    const walker = document.createTreeWalker(text, NodeFilter.SHOW_TEXT);
    let whole = "";
    while (walker.nextNode()) {
      nodes.push({ node: walker.currentNode, begin: whole.length });
      whole += walker.currentNode.data;
    }
    return [...whole.matchAll(/\S+/g)].map((match) => {
      const begin = match.index;
      const end = begin + match[0].length;
      const pieces = nodes
        .map(({ node, begin: at }) => ({ node, from: Math.max(begin - at, 0), to: Math.min(end - at, node.length) }))
        .filter(({ from, to }) => from < to)
        .map(({ node, from, to }) => {
          const range = document.createRange();
          range.setStart(node, from);
          range.setEnd(node, to);
          const { left, top, bottom } = range.getClientRects()[0];
          const { color } = getComputedStyle(node.parentElement);
          return { text: node.data.slice(from, to), color, x: left - origin.x, y: top - origin.y, bottom };
        });
      return { text: match[0], x: pieces[0].x, y: pieces[0].y, bottom: pieces.at(-1).bottom, pieces };
    });
  }

  function frame() {
    const box = scroller.getBoundingClientRect();
    const origin = { x: box.left, y: box.top - scroller.scrollTop };
    const lines = [...document.querySelectorAll(".line")].map((line) => ({
      utterance: Number(line.dataset.utterance),
      isFinal: line.closest("#finals") !== null,
      y: line.getBoundingClientRect().top - origin.y,
      words: words(line.querySelector(".text"), origin),
    }));
    return {
      mark,
      lines,
      scrollTop: scroller.scrollTop,
      below: scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight,
      bottom: box.bottom,
      ground: getComputedStyle(document.body).backgroundColor,
    };
  }

  return { begin, drawn, frame, shifts };
})();
