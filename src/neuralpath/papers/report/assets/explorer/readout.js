// The numbers of the explorer as text and bars.

const LN10 = Math.log(10);

/** Bars with the share of each class. */
export function showOutputs(place, shares, best) {
  place.replaceChildren(...shares.flatMap((share, label) => {
    const name = document.createElement("span");
    name.textContent = String(label);
    const bar = document.createElement("div");
    bar.className = label === best ? "bar top-class" : "bar";
    const filled = document.createElement("i");
    filled.style.width = `${100 * share}%`;
    bar.append(filled);
    const value = document.createElement("span");
    value.textContent = percent(share);
    return [name, bar, value];
  }));
  place.setAttribute("aria-label", `Shares of the classes; class ${best} has the largest, ${percent(shares[best])}`);
}

/** Counts of paths, each with its decimal logarithm and its share. */
export function showPaths(place, reading) {
  const { logAll, logActive, logActiveSecond, logShared } = reading;
  const share = (log, of) => percent(Math.exp(log - of) || 0); // 0 where there are no paths to have a share of
  place.replaceChildren(
    fact(logActive, `active for the first image, ${share(logActive, logAll)} of all ${power(logAll)} paths into an output`),
    fact(logActiveSecond, `active for the second image, ${share(logActiveSecond, logAll)} of all`),
    fact(logShared, `shared by both, ${share(logShared, logActive)} of those of the first`),
  );
}

/** A number from its natural logarithm, such as 1.23 × 10⁶; small ones in full. */
export function power(log) {
  if (log === -Infinity) return "none";
  const digits = log / LN10;
  if (digits < 6) return Math.round(Math.exp(log)).toLocaleString("en");
  let exponent = Math.floor(digits + 1e-9);
  let mantissa = (10 ** (digits - exponent)).toFixed(2);
  if (mantissa === "10.00") [mantissa, exponent] = ["1.00", exponent + 1];
  return `${mantissa} × 10${superscript(exponent)}`;
}

export function percent(share) {
  const hundredths = 100 * share;
  if (share === 0 || hundredths >= 10) return `${hundredths.toFixed(1)} %`;
  if (hundredths >= 0.001) return `${Number(hundredths.toPrecision(2))} %`;
  const [digits, exponent] = hundredths.toExponential(1).split("e-");
  return `${digits} × 10⁻${superscript(exponent)} %`;
}

function superscript(number) {
  return [...String(number)].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(digit)]).join("");
}

function fact(log, meaning) {
  const element = document.createElement("div");
  const value = document.createElement("b");
  value.textContent = power(log);
  const words = document.createElement("span");
  words.textContent = `${meaning}; log₁₀ ${log === -Infinity ? "−∞" : (log / LN10).toFixed(4)}`;
  element.append(value, words);
  return element;
}
