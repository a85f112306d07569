// Completions of one problem across arms. All text of the study goes in by textContent: it is never markup.
(function () {
  const place = document.getElementById("chooser"), held = document.getElementById("examples-data");
  if (!place || !held) return;
  const data = JSON.parse(held.textContent);
  const others = data.arms.filter(function (arm) { return arm !== data.baseline && arm !== "base"; });
  const state = { arm: others[0] || data.arms[0], way: "gained", benchmark: "", problem: null, shown: null };

  function make(tag, name, text) {
    const node = document.createElement(tag);
    if (name) node.className = name;
    if (text !== undefined) node.textContent = text;
    return node;
  }
  // Characters that would act (controls, overrides of direction) are named.
  function visible(text) {
    return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, function (c) {
      return "⟨U+" + c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0") + "⟩";
    });
  }
  function short(text, most) {
    const line = visible(text).replace(/\s+/g, " ");
    return line.length > most ? Array.from(line).slice(0, most).join("") + "…" : line;
  }
  // The difference of two solve rates as a fraction of whole numbers: equal ones are equal, and halves are halves.
  function fraction(problem) {
    const here = problem.arms[state.arm], there = problem.arms[data.baseline];
    if (!here || !there || !here.samples || !there.samples) return null;
    return [here.correct * there.samples - there.correct * here.samples, here.samples * there.samples];
  }
  function gain(problem) {
    const found = fraction(problem);
    return found && found[0] / found[1];
  }
  function points(found) {
    const size = Math.floor((200 * Math.abs(found[0]) + found[1]) / (2 * found[1])); // halves away from zero
    return size === 0 ? "0" : (found[0] > 0 ? "+" : "−") + size;
  }
  function chooser(title, name, options, value, act) {
    const label = make("label", name, title), select = make("select");
    options.forEach(function (pair) {
      const option = make("option", "", pair[1]);
      option.value = pair[0];
      select.append(option);
    });
    select.value = value;
    select.addEventListener("change", function () { act(select.value); });
    label.append(select);
    return label;
  }
  function choices() {
    const here = data.problems.filter(function (p) { return !state.benchmark || p.benchmark === state.benchmark; });
    if (state.way === "random") return here.filter(function (p) { return p.random; });
    const sign = state.way === "gained" ? 1 : -1;
    return here.filter(function (p) { return sign * gain(p) > 0; })
      .sort(function (a, b) { return sign * (gain(b) - gain(a)); });
  }

  const controls = make("div", "controls"), arms = make("details"), view = make("div");
  view.setAttribute("aria-live", "polite");
  place.append(controls, arms, view);

  function column(problem, arm) {
    const found = problem.arms[arm], box = make("div", "column" + (arm === state.arm ? " asked" : ""));
    box.append(make("h4", "", short(arm, 80) + (arm === data.baseline ? " (baseline)" : arm === "base" ? " (before training)" : "")));
    if (!found) {
      box.append(make("p", "note", "not evaluated"));
      return box;
    }
    const meter = make("meter");
    meter.max = found.samples;
    meter.value = found.correct;
    meter.setAttribute("aria-label", "right");
    const runs = found.runs + (arm === "base" ? " repeat" : " run") + (found.runs === 1 ? "" : "s");
    box.append(make("div", "note", found.correct + " of " + found.samples + " right, over " + runs), meter);
    if (!found.texts.length) box.append(make("p", "note", found.reason || "no completion was kept"));
    found.texts.forEach(function (one) {
      const right = one.status === "correct", entry = make("div", "completion");
      const cut = one.characters > one.text.length ? ", " + one.characters + " characters, cut" : "";
      entry.append(make("span", "mark" + (right ? " right" : ""), (right ? "✓ right" : "✗ " + one.status) + cut));
      entry.append(make("div", "text", one.text ? visible(one.text) : "(empty)"));
      box.append(entry);
    });
    return box;
  }
  function drawProblem() {
    view.replaceChildren();
    const problem = state.problem;
    if (!problem) {
      const what = state.way === "random" ? "No problem was picked at random." : "No problem of these was " + state.way + " by " + state.arm + ".";
      view.append(make("p", "", what));
      return;
    }
    const card = make("div", "problem");
    card.append(make("div", "note", problem.benchmark + " · " + problem.id + (problem.random ? " · at random" : "")));
    card.append(make("div", "text", visible(problem.question || "(the text of the problem is not there)")));
    if (problem.answer) card.append(make("div", "note", "reference answer"), make("div", "text", visible(problem.answer)));
    const columns = make("div", "columns");
    data.arms.filter(function (arm) { return state.shown.has(arm); }).forEach(function (arm) { columns.append(column(problem, arm)); });
    view.append(card, columns);
  }
  function drawArms() {
    const list = make("div", "arms");
    arms.replaceChildren(make("summary", "note", state.shown.size + " of " + data.arms.length + " arms side by side"), list);
    data.arms.forEach(function (arm) {
      const label = make("label", ""), box = make("input");
      box.type = "checkbox";
      box.checked = state.shown.has(arm);
      box.addEventListener("change", function () {
        if (box.checked) state.shown.add(arm); else state.shown.delete(arm);
        arms.firstChild.textContent = state.shown.size + " of " + data.arms.length + " arms side by side";
        drawProblem();
      });
      label.append(box, " " + short(arm, 80));
      list.append(label);
    });
  }
  function drawControls() {
    const found = choices();
    if (!found.includes(state.problem)) state.problem = found[0] || null;
    const now = found.indexOf(state.problem);
    const listed = found.map(function (p, n) {
      const by = fraction(p);
      return [String(n), (by === null ? "" : points(by) + " points: ") + short(p.question || p.id, 70)];
    });
    function step(title, name, by) {
      const made = make("button", "", title);
      made.type = "button";
      made.setAttribute("aria-label", name);
      made.disabled = !found[now + by];
      made.addEventListener("click", function () {
        state.problem = found[now + by];
        draw();
        const again = controls.querySelector("[aria-label='" + name + "']");
        if (again) again.focus();
      });
      return made;
    }
    const asked = others.length ? others : data.arms;
    const parts = [
      chooser("arm", "", asked.map(function (arm) { return [arm, short(arm, 60)]; }), state.arm, function (arm) {
        if (state.shown.has(state.arm)) state.shown.delete(state.arm);
        state.arm = arm;
        state.shown.add(arm);
        draw();
      }),
      chooser("problems", "", [["gained", "gained most"], ["lost", "lost most"], ["random", "at random"]], state.way, function (way) {
        state.way = way;
        draw();
      }),
    ];
    const benchmarks = Array.from(new Set(data.problems.map(function (p) { return p.benchmark; })));
    if (benchmarks.length > 1) {
      parts.push(chooser("benchmark", "", [["", "all"]].concat(benchmarks.map(function (b) { return [b, b]; })), state.benchmark, function (b) {
        state.benchmark = b;
        draw();
      }));
    }
    parts.push(chooser("problem, by its gain over " + short(data.baseline, 30), "pick", listed, String(now), function (n) {
      state.problem = found[Number(n)];
      draw();
    }));
    parts.push(step("‹", "Problem before", -1), step("›", "Next problem", 1));
    controls.replaceChildren(...parts);
  }
  function draw() {
    drawControls();
    drawArms();
    drawProblem();
  }
  state.shown = new Set(data.arms.length <= 3 ? data.arms : data.arms.filter(function (arm) {
    return arm === "base" || arm === data.baseline || arm === state.arm;
  }));
  if (!choices().length) state.way = data.problems.some(function (p) { return p.random; }) ? "random" : "lost";
  draw();
})();
