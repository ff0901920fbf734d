#!js name=inference
// Runs a small neural network next to its inputs: 13 measurements of a wine, 5 hidden neurons, 3 classes
// of grape, as in the Wine example of Shredder (Zhang et al., SoCC 2019). Weights and inputs are records;
// a classification reads them in place and sends one byte back instead of 104 to the client.
//
//   redis-cli -x FUNCTION LOAD < examples/functions/inference.js
//   redis-cli FCALL loadWeights 1 wine:net 42
//   redis-cli FCALL storeWine 1 wine:1 13.2 1.78 2.14 11.2 100 2.65 2.76 0.26 1.28 4.38 1.05 3.4 1050
//   redis-cli FCALL_RO classify 2 wine:net wine:1
//
// The weights are synthetic: a generator with a fixed seed makes them, so that everybody gets the same
// answers. They show the speed and the layout; they were never trained, so don't trust them with a bottle.

const INPUTS = 13;
const HIDDEN = 5;
const CLASSES = 3;
const BIAS = 1; // each neuron's row of weights begins with its bias
const HIDDEN_AT = 0;
const OUTPUT_AT = HIDDEN * (BIAS + INPUTS);
const WEIGHTS = OUTPUT_AT + CLASSES * (BIAS + HIDDEN); // 88 float32

// Typical value and spread of each measurement, to bring all inputs to the same scale: alcohol, malic
// acid, ash, alcalinity, magnesium, phenols, flavanoids, nonflavanoids, proanthocyanins, colour, hue,
// OD280/OD315, proline. Round figures of the size that the UCI Wine data set documents.
const TYPICAL = [13, 2.3, 2.4, 19.5, 100, 2.3, 2, 0.36, 1.6, 5, 0.96, 2.6, 750];
const SPREAD = [0.8, 1.1, 0.27, 3.3, 14, 0.6, 1, 0.12, 0.6, 2.3, 0.23, 0.7, 315];

/**
 * Stores weights, made from `seed`, under a key. Returns their number.
 * FCALL loadWeights 1 <key> [seed]
 */
export function loadWeights(db, [seed = "1"], [key]) {
  // xorshift32 (Marsaglia, "Xorshift RNGs", 2003). Math.random would do, but not twice the same.
  let state = Number(seed) >>> 0 || 1;
  const random = () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 2 ** 31 - 1;
  };
  const weights = new Float32Array(WEIGHTS);
  for (let i = 0; i < WEIGHTS; i++) weights[i] = random();
  // A typed array is written as its bytes; here little-endian, as Records are read.
  db.set(key, weights);
  return WEIGHTS;
}

/**
 * Stores the measurements of one wine as 13 float64.
 * FCALL storeWine 1 <key> <13 numbers>
 */
export function storeWine(db, args, [key]) {
  const wine = Float64Array.from(args, Number);
  if (wine.length !== INPUTS || wine.some(Number.isNaN)) {
    throw new Error(`a wine has ${INPUTS} measurements, all of them numbers`);
  }
  db.set(key, wine);
}

/**
 * The class of each wine, 0 to 2; null where a wine is missing.
 * FCALL_RO classify <numkeys> <key of the weights> <key of a wine> …
 */
export function classify(db, args, [net, ...wines]) {
  const weights = db.get(net);
  if (weights === undefined) throw new Error(`NOWEIGHTS call loadWeights 1 ${net} first`);
  return wines.map((key) => {
    const wine = db.get(key);
    if (wine === undefined) return null;
    const scores = forward(weights, wine);
    return scores.indexOf(Math.max(...scores));
  });
}
classify.flags = ["no-writes"];

/**
 * The probability of each class, as three doubles.
 * FCALL_RO probabilities 2 <key of the weights> <key of a wine>
 */
export function probabilities(db, args, [net, key]) {
  const weights = db.get(net);
  const wine = db.get(key);
  if (weights === undefined || wine === undefined) return null;
  const powers = forward(weights, wine).map(Math.exp);
  const total = powers.reduce((sum, power) => sum + power, 0);
  return powers.map((power) => power / total);
}
probabilities.flags = ["no-writes"];

// `weights` and `wine` are Records: w.f32(i) and w.f64(i) read the i-th number from the store's memory.
function forward(weights, wine) {
  const hidden = [];
  for (let n = 0; n < HIDDEN; n++) {
    const row = HIDDEN_AT + n * (BIAS + INPUTS);
    let sum = weights.f32(row);
    for (let i = 0; i < INPUTS; i++) {
      sum += weights.f32(row + BIAS + i) * ((wine.f64(i) - TYPICAL[i]) / SPREAD[i]);
    }
    hidden.push(Math.tanh(sum));
  }
  const scores = [];
  for (let c = 0; c < CLASSES; c++) {
    const row = OUTPUT_AT + c * (BIAS + HIDDEN);
    let sum = weights.f32(row);
    for (let n = 0; n < HIDDEN; n++) sum += weights.f32(row + BIAS + n) * hidden[n];
    scores.push(sum);
  }
  return scores;
}
