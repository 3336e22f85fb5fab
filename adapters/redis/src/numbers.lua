-- The arithmetic of the scripts: what begins decide.lua, and all scripts that contain it.
--
-- Numbers are doubles. Every product and sum that decides is below 2^53 and therefore exact, but for products of two halves (see
-- `exceeds`). So are `%`, math.floor(a / b) and math.ceil(a / b) of whole a < 2^53: if a / b is not whole, it is at least 1 / b away
-- from a whole number, and rounding moves it by at most a / b / 2^53 < 1 / b. A value that may pass 2^53 is only compared with
-- smaller ones, or subtracted from them.
local match, format, ceil = string.match, string.format, math.ceil
local MAX_UNITS, MAX_INSTANT = 2251799813685248, 281474976710655
-- A log's units, and a bucket's longest debt in milliseconds.
local MAX_LOG, MAX_DEBT = 4294967295, 31536000000
-- A year, as in the core.
local MAX_BLOCK = 31536000000
--+ balance
-- The most lots of a balance.
local MAX_LOTS = 64
--+ end
-- The longest part of a state: a log of 1,000 instants and as many debts has less than 56,000 bytes.
local MAX_PART = 65536
-- One minute (MAX_CLOCK_SKEW) and 20 years, as in the core.
local MAX_SKEW, IMPLAUSIBLE_AFTER = 60000, 630720000000

-- The end and the start of the calendar window of an instant. `first` is the start of the first known window in minutes, times 2^20, and
-- its length; `last` what is carried over, times 2^20, and the length of the next one.
local function calendar(first, last, at)
  local start, length = math.floor(first / 1048576) * 60000, first % 1048576 * 60000
  if at < start then
    local ends = start - math.floor((start - at - 1) / length) * length
    return ends, math.max(ends - length, 0)
  end
  if at >= start + length then
    start, length = start + length, last % 1048576 * 60000
    start = start + math.floor((at - start) / length) * length
  end
  return math.min(start + length, MAX_INSTANT), math.min(start, MAX_INSTANT)
end

-- a * b in units of 2^52, and the rest.
local function product(a, b)
  local a_high, b_high = math.floor(a / 67108864), math.floor(b / 67108864)
  local a_low, b_low = a % 67108864, b % 67108864
  local low = a_low * b_low
  local middle = a_high * b_low + a_low * b_high + math.floor(low / 67108864)
  return a_high * b_high + math.floor(middle / 67108864), middle % 67108864 * 67108864 + low % 67108864
end

-- Whether a * b > c * d. Products below 2^53 are exact. Larger ones are rounded by less than 2^-52 of them.
local function exceeds(a, b, c, d)
  local this, that = a * b, c * d
  if this + that < 9007199254740992 or math.abs(this - that) * 1125899906842624 > this + that then
    return this > that
  end
  local this_high, this_low = product(a, b)
  local that_high, that_low = product(c, d)
  return this_high > that_high or this_high == that_high and this_low > that_low
end
