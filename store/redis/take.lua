-- KEYS: the hold's record, and q, t, c of each dimension. ARGV: the numbers, packed; the hold's name.
local a, hold, at = ARGV[1], ARGV[2], nil
local now, dry, part
now, dry, part, at = struct.unpack('<ddd', a)
now = clock(now)

local record = {-1, {}}
local again = false
if dry == 0 then
  local v = redis.call('GET', KEYS[1])
  if v == '' then
    again = true
  elseif v then
    record = cmsgpack.unpack(v)
    again = part <= record[1]
  end
end

local dims, admitted = {}, true
for i = 1, (#KEYS - 1) / 3 do
  local qrule, trule, loose, qmost, qten, qrate, tmost, tten, trate, conc, requests, tokens, rest = struct.unpack('<dddddddddddd', a, at)
  local q, t = {most = qmost, ten = qten, rate = qrate}, {most = tmost, ten = tten, rate = trate}
  at = rest
  local d = dimension(i, qrule, trule, now)
  d.bq, d.bt, d.requests, d.tokens = q, t, requests, tokens
  d.qused, d.tused = glevel(d.qps, now, qrate), glevel(d.tpm, now, trate)
  open(d, now)
  if not again then
    local qfull = requests > 0 and gleft(d.qps, now, q) < requests
    local tfull = gleft(d.tpm, now, t) < tokens
    local ofull = requests > 0 and conc > 0 and d.open >= conc
    d.bits = (qfull and 1 or 0) + (tfull and 2 or 0) + (ofull and 4 or 0)
    if d.bits > 0 and loose == 0 then
      admitted = false
      if qfull then d.qwait = goverrun(d.qps, now, q, requests) end
      if tfull then d.twait = goverrun(d.tpm, now, t, tokens) end
    end
  end
  dims[i] = d
end

if admitted and not again and dry == 0 then
  for _, d in ipairs(dims) do
    local r = record[2][d.t]
    if not r then
      local s, l = gcharge(d.tpm, now, d.bt, d.tokens, now)
      r = {d.bt.rate, d.bt.ten, d.tokens, {s, l, d.tokens}, d.bq.rate, {}}
      record[2][d.t] = r
    else
      post(d, r, now, d.tokens)
    end
    if d.requests > 0 then
      local s, l = gcharge(d.qps, now, d.bq, d.requests, now, hold .. ':' .. part)
      local k = #r[6]
      r[6][k + 1], r[6][k + 2], r[6][k + 3], r[6][k + 4] = part, d.requests, s, l
      trim(d.c, now, now)
      redis.call('ZADD', d.c, now + HOLDLIFE, hold)
    end
    d.charged = d.requests > 0
  end
  record[1] = part
  redis.call('SET', KEYS[1], cmsgpack.pack(record), 'PX', HOLDTTL)
end

local out = {struct.pack('<d', admitted and 1 or 0)}
for i, d in ipairs(dims) do
  if not d.qwait then
    if d.charged and d.qps.short.log then
      d.qwait = QPS
    else
      d.qwait = d.requests > 0 and gempty(d.qps, now, d.bq.rate) or 0
    end
  end
  d.twait = d.twait or gempty(d.tpm, now, d.bt.rate)
  if dry == 0 then keep(d, now, d.bq.rate, d.bt.rate) end
  out[i + 1] = struct.pack('<dddddd', d.bits, d.qused, d.tused, d.open, d.qwait, d.twait)
end
return table.concat(out)
