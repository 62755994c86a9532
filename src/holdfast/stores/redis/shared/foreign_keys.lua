-- Keys that another program uses.
--
-- A key whose name carries a name may be of another program. What follows from the records is then
-- left out, reported (see strange_keys()), and repaired by the doctor: the task must not suffer.
-- uses: server
-- constants: DENIED

local strangers = {}

-- Returns whether the reply says that the key is of another type. Any other error is raised.
local function is_strange(reply)
  if type(reply) ~= 'table' or not reply.err then return false end
  if string.find(reply.err, 'WRONGTYPE', 1, true) then return true end
  error(reply.err)
end

local function follow(command, key, ...)
  local reply = try(command, key, ...)
  if not is_strange(reply) then return reply or nil end
  strangers[key] = true
  return nil
end

-- Notes that a command was refused, in a script that goes on behind the error: something is torn.
local function note_denied(wrong)
  local text = type(wrong) == 'table' and wrong.err or tostring(wrong)
  if string.find(text, 'NOPERM', 1, true) or string.find(text, 'ACL failure', 1, true)
    or string.find(text, "can't run this command", 1, true) then strangers[DENIED] = true end
end

local function strange_keys()
  local names = {}
  for name in pairs(strangers) do names[#names + 1] = name end
  return names
end
