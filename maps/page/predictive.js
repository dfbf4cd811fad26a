/* The distribution of a new measurement, as `geogp.predictive.Predictive` has it: location, scale, tails a = 1 / degrees
   of freedom (0 a Gaussian), log skewness; probabilities and quantiles. `lower` is the tail below 0 of the symmetric one. */
function logGamma(x) { // Lanczos, 1e-14
  const g = [0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
    12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7];
  let sum = g[0];
  for (let k = 1; k < 9; k++) sum += g[k] / (x - 1 + k);
  const t = x + 6.5;
  return 0.5 * Math.log(2 * Math.PI) + (x - 0.5) * Math.log(t) - t + Math.log(sum);
}

function erfc(x) { // x >= 0; series near 0, continued fraction beyond
  if (x < 2) {
    let term = x, sum = x;
    for (let k = 1; k < 60 && Math.abs(term) > 1e-17 * Math.abs(sum); k++) { term *= -x * x / k; sum += term / (2 * k + 1); }
    return 1 - 2 / Math.sqrt(Math.PI) * sum;
  }
  let f = 0;
  for (let k = 60; k > 0; k--) f = k / 2 / (x + f);
  return Math.exp(-x * x) / Math.sqrt(Math.PI) / (x + f);
}

function beta(x, a, b) { // regularised incomplete beta, by its continued fraction (Numerical Recipes 6.4)
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  if (x > (a + 1) / (a + b + 2)) return 1 - beta(1 - x, b, a);
  const front = Math.exp(logGamma(a + b) - logGamma(a) - logGamma(b) + a * Math.log(x) + b * Math.log1p(-x)) / a;
  let c = 1, d = 1 / (1 - (a + b) * x / (a + 1)), h = d;
  for (let m = 1; m < 400; m++) {
    for (const n of [m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)), -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))]) {
      d = 1 / (1 + n * d); c = 1 + n / c; h *= c * d;
    }
    if (Math.abs(c * d - 1) < 1e-15) break;
  }
  return front * h;
}

const GAUSSIAN = 1e-5; // tails below this are a Gaussian's
const lower = (u, a) => a < GAUSSIAN ? 0.5 * erfc(-u / Math.SQRT2) : 0.5 * beta(1 / (1 + u * u * a), 0.5 / a, 0.5); // u <= 0

const logDensity = (u, a) => a < GAUSSIAN ? -0.5 * u * u - 0.5 * Math.log(2 * Math.PI)
  : logGamma(0.5 / a + 0.5) - logGamma(0.5 / a) + 0.5 * Math.log(a / Math.PI) - (0.5 / a + 0.5) * Math.log1p(u * u * a);

function lowerQuantile(p, a) { // p <= 1/2; Newton on a convex function, from a Cornish-Fisher guess
  if (p >= 0.5) return 0;
  const t = Math.sqrt(-2 * Math.log(p));
  const z = -(t - (2.515517 + 0.802853 * t + 0.010328 * t * t) / (1 + 1.432788 * t + 0.189269 * t * t + 0.001308 * t * t * t));
  let u = Math.min(0, z + a * (z ** 3 + z) / 4 + a * a * (5 * z ** 5 + 16 * z ** 3 + 3 * z) / 96);
  for (let k = 0; k < 40; k++) {
    const step = (lower(u, a) - p) / Math.exp(logDensity(u, a));
    u = Math.min(0, u - step);
    if (Math.abs(step) < 1e-12 * (1 + Math.abs(u))) break;
  }
  return u;
}

/* P(U > u) of the standard distribution. `tail` may be a table of `lower`. */
function beyond(u, a, skew, tail = lower) {
  const left = Math.exp(-skew), right = Math.exp(skew), share = 2 / (left + right);
  return u > 0 ? share * right * tail(-u / right, a) : 1 - share * left * tail(u / left, a);
}

function quantile(p, a, skew) {
  const left = Math.exp(-skew), right = Math.exp(skew), share = 0.5 * (left + right);
  return p * share < 0.5 * left ? left * lowerQuantile(p * share / left, a) : -right * lowerQuantile((1 - p) * share / right, a);
}

/* Mean and variance at scale 1, whose mode is 0 (Fernández and Steel 1998, eq. 5). */
function mean(a, skew) {
  const half = a < GAUSSIAN ? 1 / Math.sqrt(2 * Math.PI) : Math.exp(logDensity(0, a)) / (1 - a);
  return 2 * half * (Math.exp(skew) - Math.exp(-skew));
}
function variance(a, skew) {
  const left = Math.exp(-skew), right = Math.exp(skew), square = a < GAUSSIAN ? 1 : 1 / (1 - 2 * a);
  return square * (left ** 3 + right ** 3) / (left + right) - mean(a, skew) ** 2;
}

/* With a second peak: a share w of the mass is a Gaussian's, whose location m and scale r are in units of the first. `tail` and
   `bell` may be tables of `lower`, of the first peak and of the Gaussian. */
function beyondBoth(u, a, skew, w, m, r, tail = lower, bell = lower) {
  const first = beyond(u, a, skew, tail);
  return w > 0 ? (1 - w) * first + w * beyond((u - m) / r, 0, 0, bell) : first;
}

/* Between the p-quantiles of the two, `one` and `other`: ITP steps (Oliveira and Takahashi 2020), at most one more than halving
   takes, until the bracket is `near` wide. */
function quantileOfBoth(p, a, skew, w, m, r, one = quantile(p, a, skew), other = m + r * quantile(p, 0, 0), tail = lower, bell = lower, near = 1e-11) {
  if (!(w > 0)) return one;
  const below = (u) => 1 - p - beyondBoth(u, a, skew, w, m, r, tail, bell);
  let low = Math.min(one, other), high = Math.max(one, other), under = below(low), over = below(high), most = near;
  if (!(under < 0)) return low; // tables are rounded
  if (!(over > 0)) return high;
  const slope = 0.2 / (high - low);
  while (most < high - low) most *= 2;
  for (; high - low > near; most *= 0.5) {
    const middle = 0.5 * (low + high), secant = low - under * (high - low) / (over - under), away = middle - secant;
    const held = Math.max(0, Math.abs(away) - slope * (high - low) ** 2), reach = most - 0.5 * (high - low);
    const u = middle - Math.sign(away) * Math.min(held, reach), y = below(u);
    if (y > 0) { high = u; over = y; } else { low = u; under = y; }
    if (y === 0) return u;
  }
  return low - under * (high - low) / (over - under);
}
function varianceOfBoth(a, skew, w, m, r) {
  const first = variance(a, skew);
  return w > 0 ? (1 - w) * first + w * r * r + w * (1 - w) * (m - mean(a, skew)) ** 2 : first;
}
/* Whether a reader meets two kinds of values: the second has 2% or more, and lies beyond D = 2 of Ashman, Bird and Zepf (1994). */
const standApart = (w, m, r) => w >= 0.02 && m * m > 2 * (1 + r * r);

const normal = (u) => u <= 0 ? 0.5 * erfc(-u / Math.SQRT2) : 1 - 0.5 * erfc(u / Math.SQRT2);

/* P(z < h and z' < k) of Gaussian pairs with a correlation: Plackett's integral over it (Drezner and Wesolowsky 1990) by
   Gauss and Legendre, as `geogp.areas.together.either_below`. */
function legendre(n) { // nodes and weights on [-1, 1], by Newton
  const out = [];
  for (let k = 0; k < n; k++) {
    let x = Math.cos(Math.PI * (k + 0.75) / (n + 0.5)), slope = 1;
    for (let t = 0; t < 50; t++) {
      let a = 1, b = x;
      for (let j = 2; j <= n; j++) [a, b] = [b, ((2 * j - 1) * x * b - (j - 1) * a) / j];
      slope = n * (x * b - a) / (x * x - 1);
      const step = b / slope;
      x -= step;
      if (Math.abs(step) < 1e-15) break;
    }
    out.push([x, 2 / ((1 - x * x) * slope * slope)]);
  }
  return out;
}
function bothBelow(correlation) {
  const angle = 0.5 * Math.asin(correlation), nodes = legendre(Math.abs(correlation) < 0.8 ? 16 : 48).map(([node, weight]) => {
    const theta = angle * (node + 1);
    return [Math.sin(theta), 1 / (2 * Math.cos(theta) ** 2), weight * angle / (2 * Math.PI)];
  });
  return (h, k) => {
    const x = Math.max(-38, Math.min(38, h)), y = Math.max(-38, Math.min(38, k)), square = x * x + y * y, product = 2 * x * y;
    let sum = normal(x) * normal(y);
    for (const [sine, over, weight] of nodes) sum += weight * Math.exp(-(square - product * sine) * over);
    return sum;
  };
}

/* Tables, for pictures: bilinear between exact values, far finer than a colour. */
function bilinear(width, height, at) {
  const values = new Float64Array(width * height);
  for (let j = 0; j < height; j++) for (let i = 0; i < width; i++) values[j * width + i] = at(i / (width - 1), j / (height - 1));
  return (x, y) => {
    const u = Math.min(width - 1.000001, Math.max(0, x * (width - 1))), v = Math.min(height - 1.000001, Math.max(0, y * (height - 1)));
    const i = Math.floor(u), j = Math.floor(v), s = u - i, t = v - j, k = j * width + i;
    return (values[k] * (1 - s) + values[k + 1] * s) * (1 - t) + (values[k + width] * (1 - s) + values[k + width + 1] * s) * t;
  };
}
function range(values) {
  let low = Infinity, high = -Infinity;
  for (const v of values) { if (v < low) low = v; if (v > high) high = v; }
  return [low, high > low ? high : low + 1e-9];
}
function quantileTable(p, tails, skews) {
  const [a0, a1] = range(tails), [s0, s1] = range(skews);
  const table = bilinear(49, 33, (x, y) => quantile(p, a0 + x * (a1 - a0), s0 + y * (s1 - s0)));
  return (a, s) => table((a - a0) / (a1 - a0), (s - s0) / (s1 - s0));
}
function tailTable(tails) {
  const [a0, a1] = range(tails);
  const table = bilinear(193, 33, (x, y) => x >= 1 ? 0 : lower(-4 * x / (1 - x), a0 + y * (a1 - a0)));
  return (u, a) => { const d = -u / 4; return table(d / (1 + d), (a - a0) / (a1 - a0)); };
}
