-- Times as the text that is stored, in ISO 8601 and UTC.

local isos = {}

local function iso(seconds)
  if isos[seconds] then return isos[seconds] end
  local us = math.floor(seconds * 1000000 + 0.5)
  local days = math.floor(us / 86400000000)
  us = us - days * 86400000000
  local z = days + 719468
  local era = math.floor(z / 146097)
  local doe = z - era * 146097
  local yoe = math.floor(
    (doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  local mp = math.floor((5 * doy + 2) / 153)
  local day = doy - math.floor((153 * mp + 2) / 5) + 1
  local month = mp < 10 and mp + 3 or mp - 9
  local year = yoe + era * 400 + (month <= 2 and 1 or 0)
  local s = math.floor(us / 1000000)
  isos[seconds] = string.format('%04d-%02d-%02dT%02d:%02d:%02d.%06dZ', year, month, day,
    math.floor(s / 3600), math.floor(s / 60) % 60, s % 60, us % 1000000)
  return isos[seconds]
end
