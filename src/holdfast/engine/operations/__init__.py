"""Operations on tasks, tenants, queues and the store, as an operator asks for them."""
