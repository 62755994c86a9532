-- newest_ids: Reads the newest ids of several indexes in one step, so that a task that moves is in
-- one of them.
-- ARGV 2 from where on, 3 how many of each, 4… sorted sets of ids. Answers for each its ids, the
-- greatest first.
-- uses: answers server

return answer_each(4, function(index)
  return call('ZREVRANGEBYLEX', index, ARGV[2], '-', 'LIMIT', 0, ARGV[3])
end)
